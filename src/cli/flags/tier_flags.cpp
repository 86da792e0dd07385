// Adds the flags of tiers and connectors. Called once by `quire serve` while the command line is set up, before any thread is started. A
// flag only writes its option. The engine checks the options (engine/tiers/tier_check.h), so that programs that embed quire get the same
// errors.
#include "cli/flags/tier_flags.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "cli/flags/option_flags.h"
#include "quire/engine_option_table.h"

namespace quire {
namespace {

// Adds the flags that apply to all tiers.
void add_shared_flags(CLI::App& app, TierFlags& flags) {
  app.add_option_function<std::string>(
         "--kv-key", [&](const std::string& file) { flags.kv_peer.key_file = flags.kv_peer_cache.key_file = file; },
         "File with at least 16 random bytes, the same on all servers of --kv-role, --kv-peers and --kv-share. Blocks are exchanged only "
         "with servers that have it. Required unless all servers are on this machine")
      ->type_name("FILE");
  app.add_option_function<std::string>(
         "--kv-policy",
         [&](const std::string& name) {
           flags.policy = flags.kv_dram.policy = flags.kv_disk.policy = flags.kv_remote.policy = flags.kv_peer_cache.policy =
               name == "exact" ? KvTierPolicy::exact : KvTierPolicy::measured;
         },
         "When tiers store and load blocks: --kv-dram, --kv-disk, --kv-remote, --kv-peers and --kv-connector OffloadingConnector. exact: "
         "as in vLLM. measured: compute blocks that would take longer to load, and never delay a step for a store to a disk or to another "
         "server (default measured)")
      ->check(CLI::IsMember({"exact", "measured"}));
  app.add_flag_function(
      "--kv-join-loads",
      [&](std::int64_t) {
        flags.kv_dram.join_loads = flags.kv_disk.join_loads = flags.kv_remote.join_loads = flags.kv_peer_cache.join_loads = true;
      },
      "Let a request load blocks from --kv-dram, --kv-disk, --kv-remote or --kv-peers while another request loads the same blocks, instead "
      "of waiting for that request (default off, as in vLLM)");
  app.add_option_function<std::uint32_t>(
         "--kv-store-threshold",
         [&](std::uint32_t threshold) { flags.kv_dram.store_threshold = flags.kv_disk.store_threshold = threshold; },
         "Store a block in --kv-dram and --kv-disk only after prompts have requested it this many times (store_threshold in vLLM; default "
         "0: store all blocks)")
      ->type_name("UINT");
  app.add_option_function<std::uint32_t>(
         "--kv-max-tracker-size", [&](std::uint32_t size) { flags.kv_dram.max_tracker_size = flags.kv_disk.max_tracker_size = size; },
         "Maximum number of block hashes per tier that are counted for --kv-store-threshold (max_tracker_size in vLLM; default 64000)")
      ->type_name("UINT");
}

// Returns the path of the installed library with ExampleConnector and other connectors; nullopt if the library does not exist or is already
// in `given`.
std::optional<std::string> find_bundled_library(const std::vector<std::string>& given) {
  constexpr const char* kName = "libquire_example_connectors.so";
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place : {".", "../lib/quire", "../lib/x86_64-linux-gnu/quire", "../lib/aarch64-linux-gnu/quire", "../lib64/quire"}) {
    const std::filesystem::path path = std::filesystem::weakly_canonical(folder / place / kName, error);
    if (error || !std::filesystem::exists(path, error)) continue;
    const auto is_it = [&](const std::string& other) { return std::filesystem::equivalent(other, path, error); };
    return std::ranges::any_of(given, is_it) ? std::nullopt : std::optional(path.string());
  }
  return std::nullopt;
}

void add_connector_flags(CLI::App& app, TierFlags& flags) {
  CLI::Option* const connector =
      app.add_option(
             "--kv-connector", flags.kv_connectors,
             "Connector that stores KV blocks elsewhere: OffloadingConnector,cpu_bytes_to_use=1000000000, SimpleCPUOffloadConnector, "
             "ExampleConnector (a folder), DecodeBenchConnector (dummy values) or a connector of a library. Repeatable: all of them store; "
             "a request loads from the first with a match, and from tiers first; docs/embedding.md")
          ->type_name("NAME[,key=value...]");
  app.add_option("--kv-connector-library", flags.kv_connector_libraries,
                 "Shared library with further connectors, tiers or eviction policies; repeatable")
      ->type_name("PATH");
  app.add_flag("--kv-connector-longest", flags.kv_connector_longest,
               "Load from the connector or tier with the longest match of the prompt (default: the first with a match)")
      ->needs(connector);
}

}  // namespace

void add_tier_flags(CLI::App& app, EngineOptions& options, TierFlags& flags) {
  add_option_flags(app, kKvDramOptions, flags.kv_dram);
  add_option_flags(app, kKvDiskOptions, flags.kv_disk);
  add_option_flags(app, kKvRemoteOptions, flags.kv_remote);
  add_option_flags(app, kKvPeerOptions, flags.kv_peer);
  add_option_flags(app, kKvPeerCacheOptions, flags.kv_peer_cache);
  add_option_flags(app, kLoadFailureOptions, options);
  add_shared_flags(app, flags);
  add_connector_flags(app, flags);
  group_flags(app, OptionGroup::tiers);
}

Result<ConnectorChoice> connectors_of(const TierFlags& flags) {
  if (!flags.kv_connector_libraries.empty() && flags.kv_connectors.empty() && flags.kv_disk.folder.empty() && flags.kv_dram.bytes == 0)
    return fail(ErrorCode::invalid_argument, "kv_connector_library", "the library is not used",
                "select one of its connectors with --kv-connector, or one of its eviction policies with --kv-disk-policy");
  ConnectorChoice choice{.registry = std::make_shared<ConnectorRegistry>(),
                         .connectors = {},
                         .prefers_longest_match = flags.kv_connector_longest,
                         .policy = flags.policy};
  for (const std::string& path : flags.kv_connector_libraries) choice.registry->add_library(path);
  if (const auto own = find_bundled_library(flags.kv_connector_libraries)) choice.registry->add_library(*own, true);
  for (const std::string& text : flags.kv_connectors) {
    auto connector = parse_named_connector(text);
    if (!connector) return std::unexpected(connector.error());
    choice.connectors.push_back(*std::move(connector));
  }
  return choice;
}

}  // namespace quire
