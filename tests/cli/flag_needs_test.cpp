// Tests that every flag of `quire serve` has an effect alone, or that CLI11 or the table of flag_needs.h states what it needs.
#include "cli/flags/flag_needs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "cli/command.h"

namespace quire {
namespace {

// Lists flags that have an effect alone, and flags whose missing feature the engine or the server reports.
const std::set<std::string>& standalone() {
  static const std::set<std::string> kFlags = {"--help",
                                               "--mmproj",
                                               "--served-model-name",
                                               "--kv-cache-memory",
                                               "--num-blocks",
                                               "--block-size",
                                               "--kv-cache-dtype",
                                               "--enable-prefix-caching",
                                               "--mamba-cache-mode",
                                               "--kv-lifo",
                                               "--kv-slru",
                                               "--kv-retention",
                                               "--count-common-prefix",
                                               "--tenant-turns",
                                               "--max-num-seqs",
                                               "--max-num-batched-tokens",
                                               "--max-model-len",
                                               "--max-num-waiting",
                                               "--max-num-queued-reqs",
                                               "--max-num-queued-tokens",
                                               "--max-ttft",
                                               "--long-prefill-token-threshold",
                                               "--scheduler-reserve-full-isl",
                                               "--enable-chunked-prefill",
                                               "--scheduling-policy",
                                               "--async-scheduling",
                                               "--kv-watermark",
                                               "--kv-pressure-high",
                                               "--kv-swap",
                                               "--kv-swap-disk",
                                               "--max-forks",
                                               "--step-time-target",
                                               "--speculative-config",
                                               "--speculative-model",
                                               "--num-speculative-tokens",
                                               "--quantize",
                                               "--weights-cache",
                                               "--enable-prompt-embeds",
                                               "--threads",
                                               "--seed",
                                               "--activations",
                                               "--isa",
                                               "--config",
                                               "--models",
                                               "--supervised",
                                               "--chat-template",
                                               "--generation-config",
                                               "--override-generation-config",
                                               "--kv-dram",
                                               "--kv-disk",
                                               "--kv-remote",
                                               "--kv-peers",
                                               "--kv-share",
                                               "--kv-role",
                                               "--kv-connector",
                                               "--kv-connector-library",
                                               "--enable-lora",
                                               "--lora-modules",
                                               "--host",
                                               "--port",
                                               "--allow-remote-admin",
                                               "--allowed-host",
                                               "--cors-allow-origin",
                                               "--trusted-proxy",
                                               "--max-body-bytes",
                                               "--max-body-bytes-in-flight",
                                               "--max-connections",
                                               "--max-parse-ms",
                                               "--session-timeout-ms",
                                               "--response-store",
                                               "--strict-fields",
                                               "--enable-return-routed-experts",
                                               "--tool-call-one-spelling",
                                               "--drain-timeout-ms",
                                               "--pooling",
                                               "--hidden-states",
                                               "--matryoshka",
                                               "--api-key",
                                               "--tenant-keys-file",
                                               "--tenant-key",
                                               "--log-level",
                                               "--log-format",
                                               "--otlp-traces-endpoint",
                                               "--log-slow-ms",
                                               "--kv-cache-metrics",
                                               "--trace",
                                               "--explained-requests",
                                               "--journal",
                                               "--journal-memory",
                                               "--kv-events-config"};
  return kFlags;
}

TEST(FlagNeeds, EveryFlagOfServeWorksAloneOrStatesItsNeeds) {
  CLI::App app("quire", "quire");
  const Command serve = add_serve_command(app);
  std::set<std::string> listed;
  for (const FlagNeed& need : flag_needs()) {
    EXPECT_TRUE(listed.insert(std::string(need.flag)).second) << need.flag << " is listed twice";
    EXPECT_NE(serve.app->get_option_no_throw(std::string(need.flag)), nullptr) << need.flag << " is not a flag";
    EXPECT_FALSE(need.missing.empty() || need.remedy.empty());
  }
  for (const CLI::Option* option : serve.app->get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string flag = "--" + option->get_lnames().front();
    const bool needs_flag = !option->get_needs().empty();
    EXPECT_TRUE(needs_flag || listed.contains(flag) || standalone().contains(flag))
        << flag << ": state in flag_needs.cpp what it needs, or list it here if it needs nothing";
    EXPECT_FALSE(listed.contains(flag) && standalone().contains(flag)) << flag;
  }
}

TEST(FlagNeeds, FlagThatIsNotGivenIsNotReported) {
  CLI::App app("quire", "quire");
  const Command serve = add_serve_command(app);
  const EngineOptions engine;
  const ServerOptions server;
  const TierFlags tiers;
  const LoraFlags lora;
  const ModelInfo model;
  EXPECT_TRUE(flags_without_effect(*serve.app, {engine, server, tiers, lora, model}).empty());
}

}  // namespace
}  // namespace quire
