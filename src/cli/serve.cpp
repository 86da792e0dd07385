// quire serve: serves the OpenAI API for one model, or for several models (serve_models.h). Runs on the main thread: sets up the flags,
// creates the engine and the server, and serves until a signal. An error is printed to stderr, and the exit status is then not 0. Nothing
// is printed to stdout before the server listens, because scripts wait for that line; only a supervisor also gets errors there.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/format_bytes.h"
#include "cli/command.h"
#include "cli/find_model.h"
#include "cli/flags/flag_names.h"
#include "cli/flags/serve_flags.h"
#include "cli/kv_lines.h"
#include "cli/models_flags.h"
#include "cli/serve_models.h"
#include "cli/server_url.h"
#include "cli/start_engine.h"
#include "quire/engine.h"
#include "quire/server.h"
#include "quire/server_options.h"
#include "server/http/descriptors.h"

namespace quire {

namespace {

void print_kv_disk(const KvTierStats& tier, const std::string& folder) {
  fmt::print("KV disk: {} slots of {} in {}, budget {} (--kv-disk-budget), {} tokens", tier.num_places, format_bytes(tier.place_bytes),
             folder, format_bytes(tier.budget_bytes), tier.capacity_tokens);
  if (tier.num_unread_slots > 0) fmt::print("; the blocks stored before are being indexed");
  if (tier.num_unread_slots == 0) fmt::print("; {} slots hold blocks", tier.num_used_slots);
  fmt::print("\n");
}

void print_tier(const KvTierStats& tier, const std::string& kv_disk) {
  const std::string place = format_bytes(tier.place_bytes);
  if (tier.name == "disk")
    print_kv_disk(tier, kv_disk);
  else if (tier.name == "remote")
    fmt::print("KV remote: up to {} blocks of {}, budget {} (--kv-remote-budget), {} tokens\n", tier.num_places, place,
               format_bytes(tier.budget_bytes), tier.capacity_tokens);
  else if (tier.name == "peer_cache")
    fmt::print("KV peers: up to {} blocks of {} on other servers are tracked (--kv-peers, --kv-share)\n", tier.num_places, place);
  else if (tier.name == "dram")
    fmt::print("KV DRAM: {} slots of {} (--kv-dram), {} tokens\n", tier.num_places, place, tier.capacity_tokens);
  else if (tier.num_places > 0)
    fmt::print("KV connector {}: {} slots of {}, {} tokens\n", tier.name, tier.num_places, place, tier.capacity_tokens);
}

void print_kv_cache(const Engine& engine) {
  const EngineOptions& options = engine.options();
  const Result<KvLayout> layout = plan_kv_layout(engine.model(), options);
  if (!layout) return;
  fmt::print("KV cache: {} blocks, {}; up to {} running requests of up to {} tokens each\n", layout->num_blocks - 1,
             describe_kv_cost(*layout), options.scheduler.max_num_seqs, options.scheduler.max_model_len);
  if (layout->groups.size() > 1)
    for (const std::string& line : describe_kv_groups(*layout)) fmt::print("  {}\n", line);
}

// Prints the sampling parameters of requests that do not set them, and where the values come from.
void print_sampling_defaults(const GenerationConfig& config) {
  const std::string values = describe(config.defaults);
  if (values.empty() && config.ignored.empty()) return;
  fmt::print("Sampling defaults: {} (from {}; see --generation-config)", values.empty() ? "none" : values, config.source);
  if (!config.ignored.empty()) fmt::print("; not supported: {}", fmt::join(config.ignored, ", "));
  fmt::print("\n");
}

void print_ready(const Server& server, const ServerOptions& options, const Engine& engine, const GenerationConfig& generation,
                 const std::string& kv_disk, double seconds) {
  const std::string url = server_url(options.host, server.port());
  fmt::print("quire serves {} on {} (ready after {:.2f} s)\n", server.model_name(), url, seconds);
  print_kv_cache(engine);
  if (const std::uint64_t bytes = engine.options().weights.expert_bytes; bytes > 0)
    fmt::print("Experts: {} of {} in memory (--expert-memory); the others are read from {} when needed\n",
               format_bytes(std::min(bytes, engine.model().expert_bytes)), format_bytes(engine.model().expert_bytes),
               engine.options().weights.cache_folder);
  if (const EngineOptions& made = engine.options(); !made.draft_model.empty())
    fmt::print("Speculative decoding: up to {} draft tokens of {} (--speculative-model)\n", made.speculation.num_speculative_tokens,
               made.draft_model);
  for (const std::string& note : engine.model().packing_notes) fmt::print("Packed weights: {}\n", note);
  if (const auto swap = engine.stats().kv_swap)
    fmt::print("KV swap: {} slots of {} for preempted requests (--kv-swap)\n", swap->num_places, format_bytes(swap->place_bytes));
  for (const KvTierStats& tier : engine.stats().kv_tiers) print_tier(tier, kv_disk);
  if (server.max_connections() < options.max_connections) {
    fmt::print("Connections are limited to {} instead of {} by the limit of open files (ulimit -Hn)\n", server.max_connections(),
               options.max_connections);
  }
  print_sampling_defaults(generation);
  for (const AdapterInfo& adapter : engine.adapters())
    fmt::print("LoRA adapter {}: rank {}, {}, {}\n", adapter.name, adapter.rank, format_bytes(adapter.bytes), adapter.path);
  if (options.tenants_share_cache())
    fmt::print(
        "Tenants share cached prefixes, so response times can reveal the prompts of other tenants; use --tenant-secret to isolate them\n");
  if (!server.chat_problem().empty()) fmt::print("Chat is not available for this model: {}\n", server.chat_problem());
  fmt::print("Chat page: {}/   dashboard: {}/dashboard   metrics: {}/metrics\nTry:\n", url, url, url);
  const char* key = options.api_key.empty() && options.tenant_keys.empty() ? "" : " -H 'Authorization: Bearer YOUR_KEY'";
  if (engine.model().has_encoder())
    fmt::print("  curl {}/v1/audio/transcriptions{} -F file=@recording.mp3\n", url, key);
  else
    fmt::print("  curl {}/v1/chat/completions -H 'Content-Type: application/json'{} \\\n    -d '{}'\n", url, key,
               R"({"messages": [{"role": "user", "content": "Name three rivers."}], "max_tokens": 64})");
  std::fflush(stdout);
}

Result<int> serve(const CLI::App& command, const ServeFlags& flags) {
  const auto plan = plan_serving(command, flags);
  if (!plan.has_value()) return std::unexpected(plan.error());
  const ServerOptions& options = plan->server;
  auto port = BoundPort::bind(options);
  if (!port.has_value()) return std::unexpected(port.error());
  const auto start = std::chrono::steady_clock::now();
  auto engine = start_engine(plan->engine);
  if (!engine.has_value()) return std::unexpected(engine.error());
  warn_of_unused_flags(command, flags, options, **engine, *plan->logger);
  raise_descriptor_limit();
  auto server = Server::create(**engine, options, *plan->logger, *std::move(port));
  if (!server.has_value()) return std::unexpected(server.error());
  print_ready(**server, options, **engine, plan->generation, flags.tiers.kv_disk.folder,
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  (*server)->run();
  const std::uint32_t aborted = (*engine)->stop(0.0);
  fmt::print("Stopped: {} requests were aborted, all blocks are free.\n", aborted);
  return 0;
}

// Lets the system end this process when the supervisor ends, however that happens.
Result<void> bind_to_supervisor(int supervisor) {
  if (supervisor == 0) return {};
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != supervisor)
    return fail(ErrorCode::io, "", "the process that started this one has ended", "start quire serve --models again");
  return {};
}

// Takes over what the supervisor has set for this process.
void add_supervised_flags(ServeFlags& flags) {
  // Several processes write one log.
  if (!flags.served_names.empty()) flags.log.process = flags.served_names.front();
  const char* const keys = std::getenv(kTenantKeysVariable);
  std::istringstream lines(keys == nullptr ? "" : keys);
  for (std::string line; std::getline(lines, line);) flags.tenant_keys.push_back(line);
}

// Reports an error to the supervisor, which reads stdout. main() prints it to stderr.
std::unexpected<Error> reported(const CLI::App& command, const ModelsFlags& models, Error error) {
  if (models.supervisor != 0) {
    fmt::print("quire: {}\n", as_flag(command, error).to_string());
    std::fflush(stdout);
  }
  return std::unexpected(std::move(error));
}

}  // namespace

Command add_serve_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model over the OpenAI API");
  auto flags = std::make_shared<ServeFlags>();
  flags->server.handle_signals = true;
  add_serve_flags(*command, *flags);
  auto models = std::make_shared<ModelsFlags>();
  add_models_flags(*command, *models);
  command->get_option("model")->required(false);  // not with --models
  command->footer(
      "Examples:\n"
      "  quire serve model.gguf\n"
      "  quire serve ./Qwen3-0.6B --kv-cache-memory 4GiB --max-model-len 8192\n"
      "  quire serve model.gguf --kv-disk /var/cache/quire --kv-disk-budget 20GiB\n"
      "  quire serve model.gguf --host 0.0.0.0 --api-key \"$KEY\"\n"
      "  quire serve --config quire.yaml\n"
      "  quire serve --models models.yaml --kv-disk /var/cache/quire\n"
      "  QUIRE_API_KEY=... QUIRE_TENANT_SECRET=... quire serve model.gguf --tenant-keys-file keys.txt\n\n"
      "Admin requests, from the same machine:\n"
      "  curl -X POST 'URL/pause?mode=keep'   keep: freeze requests; wait: let running ones finish; abort (default): end all\n"
      "  curl -X POST URL/resume              continue, also with requests that arrived meanwhile; GET URL/is_paused\n"
      "  curl -X POST URL/reset_prefix_cache  drop cached prefixes (?reset_running_requests=true while busy)\n"
      "  curl -X POST URL/v1/journal/save     save the journal of the last minutes, for quire replay\n\n"
      "SIGTERM lets running requests finish; a second SIGTERM stops immediately.");
  return {command, [command, flags, models]() -> Result<int> {
            if (!models->path.empty()) return serve_models(*command, *flags, *models);
            if (flags->engine.model.empty()) return fail(ErrorCode::invalid_argument, "", "MODEL is missing", "see quire serve --help");
            if (const auto bound = bind_to_supervisor(models->supervisor); !bound) return std::unexpected(bound.error());
            if (models->supervisor != 0) add_supervised_flags(*flags);
            if (auto found = find_models(flags->engine); !found) return reported(*command, *models, std::move(found.error()));
            auto status = serve(*command, *flags);
            return status ? status : reported(*command, *models, std::move(status.error()));
          }};
}

}  // namespace quire
