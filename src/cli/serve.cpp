// quire serve: serves the OpenAI API for one model. Runs on the main thread: sets up the flags, creates the engine and the server, and
// serves until a signal. An error is printed to stderr, and the exit status is then not 0. Nothing is printed to stdout before the server
// listens, because scripts wait for that line.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "base/format_bytes.h"
#include "cli/command.h"
#include "cli/find_model.h"
#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/flag_needs.h"
#include "cli/flags/kv_events_flag.h"
#include "cli/flags/lora_flags.h"
#include "cli/flags/option_flags.h"
#include "cli/flags/tier_flags.h"
#include "cli/kv_lines.h"
#include "cli/start_engine.h"
#include "quire/base/logger.h"
#include "quire/engine.h"
#include "quire/engine_option_table.h"
#include "quire/server.h"
#include "quire/server_option_table.h"
#include "quire/server_options.h"
#include "server/http/descriptors.h"
#include "server/http/tenants.h"

namespace quire {

namespace {

struct ServeFlags {
  EngineOptions engine;
  ServerOptions server;
  std::vector<std::string> served_names;
  std::string config_file;  // read before the flags are parsed (cli/config_file.h)
  std::string chat_template_file;
  GenerationConfigOptions generation;
  std::vector<std::string> tenant_keys;
  std::string tenant_keys_file;
  LogOptions log;
  TierFlags tiers;
  LoraFlags lora;
};

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

// Returns a URL that a browser or curl on this machine can use.
std::string url_of(const std::string& host, std::uint16_t port) {
  if (host == "0.0.0.0") return fmt::format("http://127.0.0.1:{}", port);
  if (host == "::") return fmt::format("http://[::1]:{}", port);
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
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
  const std::string url = url_of(options.host, server.port());
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

Result<ServerOptions> server_options_of(const ServeFlags& flags, const GenerationConfig& generation) {
  ServerOptions options = flags.server;
  options.generation_defaults = generation.defaults;
  for (std::size_t i = 1; i < flags.served_names.size(); ++i) options.served_model_aliases.push_back(flags.served_names[i]);
  if (!flags.chat_template_file.empty()) {
    std::ifstream file(flags.chat_template_file);
    options.chat_template.assign(std::istreambuf_iterator<char>(file), {});
    if (!file || options.chat_template.empty())
      return fail(ErrorCode::not_found, "--chat-template", fmt::format("'{}' cannot be read or is empty", flags.chat_template_file),
                  "use a file with a Jinja template");
  }
  if (!flags.tenant_keys_file.empty()) {
    auto keys = read_tenant_keys(flags.tenant_keys_file);
    if (!keys.has_value()) return std::unexpected(keys.error());
    options.tenant_keys = std::move(*keys);
  }
  for (const std::string& text : flags.tenant_keys) {
    auto key = parse_tenant_key(text, "tenant_key");
    if (!key.has_value()) return std::unexpected(key.error());
    options.tenant_keys.push_back(std::move(*key));
  }
  if (const Result<void> valid = options.validate(); !valid.has_value()) return std::unexpected(valid.error());
  return options;
}

// Returns the limit of waiting requests for each tenant: an even share of max_num_waiting among the tenants and clients with the server's
// API key. The limit is at least `max_choices`, so that a request for the maximum number of answers may wait.
std::uint32_t tenant_share(std::uint32_t max_num_waiting, const ServerOptions& options) {
  std::set<std::string_view> tenants{""};
  for (const TenantKey& key : options.tenant_keys) tenants.insert(key.tenant);
  return std::min(max_num_waiting, std::max(options.max_choices, max_num_waiting / static_cast<std::uint32_t>(tenants.size())));
}

// Warns about flags without effect before the server listens.
void warn_of_unused_flags(const CLI::App& command, const ServeFlags& flags, const ServerOptions& options, const Engine& engine,
                          Logger& logger) {
  for (const Error& idle : flags_without_effect(command, {engine.options(), options, flags.tiers, flags.lora, engine.model()}))
    logger.write(LogLevel::warn, "flag_without_effect",
                 {{"flag", idle.field}, {"why", fmt::format("{}. To use it, {}.", idle.message, idle.remedy)}});
}

Result<int> serve(const CLI::App& command, const ServeFlags& flags) {
  const auto generation = read_generation_config(flags.engine.model, flags.generation);
  if (!generation.has_value()) return std::unexpected(generation.error());
  const auto options = server_options_of(flags, *generation);
  if (!options.has_value()) return std::unexpected(options.error());
  auto port = BoundPort::bind(*options);
  if (!port.has_value()) return std::unexpected(port.error());
  auto connectors = connectors_of(flags.tiers);
  if (!connectors.has_value()) return std::unexpected(connectors.error());
  const auto start = std::chrono::steady_clock::now();
  const auto logger = std::make_shared<Logger>(flags.log);
  EngineOptions engine_options = flags.engine;
  if (std::uint32_t& most = engine_options.max_tenant_waiting; most == 0 && !options->tenant_keys.empty())
    most = tenant_share(engine_options.scheduler.max_num_waiting, *options);
  auto adapters = adapter_options(flags.lora);
  if (!adapters.has_value()) return std::unexpected(adapters.error());
  engine_options.adapters = *std::move(adapters);
  if (!flags.served_names.empty()) engine_options.served_model_name = flags.served_names.front();
  auto engine = start_engine(EngineBuilder(engine_options)
                                 .logger(logger)
                                 .kv_disk(flags.tiers.kv_disk)
                                 .kv_dram(flags.tiers.kv_dram)
                                 .kv_remote(flags.tiers.kv_remote)
                                 .kv_peer(flags.tiers.kv_peer)
                                 .kv_peer_cache(flags.tiers.kv_peer_cache)
                                 .connectors(*std::move(connectors)));
  if (!engine.has_value()) return std::unexpected(engine.error());
  warn_of_unused_flags(command, flags, *options, **engine, *logger);
  raise_descriptor_limit();
  auto server = Server::create(**engine, *options, *logger, *std::move(port));
  if (!server.has_value()) return std::unexpected(server.error());
  print_ready(**server, *options, **engine, *generation, flags.tiers.kv_disk.folder,
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  (*server)->run();
  const std::uint32_t aborted = (*engine)->stop(0.0);
  fmt::print("Stopped: {} requests were aborted, all blocks are free.\n", aborted);
  return 0;
}

// Parses {"image": 4}, as in vLLM, or image=4. Returns false if the text has neither form.
bool read_image_limit(const std::string& given, std::uint32_t& most) {
  std::string text;
  for (const char c : given)
    if (std::string_view(" {}\"").find(c) == std::string_view::npos) text += c == ':' ? '=' : c;
  constexpr std::string_view kName = "image=";
  if (!text.starts_with(kName)) return false;
  const auto read = std::from_chars(text.data() + kName.size(), text.data() + text.size(), most);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

// Adds the flags of server options whose values need parsing.
void add_parsed_flags(CLI::App& app, ServerOptions& server) {
  app.add_option_function<std::string>(
         "--pooling",
         [&server](const std::string& name) {
           server.pooling = name == "mean" ? PoolingKind::mean : name == "cls" ? PoolingKind::first : PoolingKind::last;
         },
         "Tokens from which /v1/embeddings computes a vector: last, cls (the first) or mean (default: as in the files of the model, else "
         "last)")
      ->check(CLI::IsMember({"last", "cls", "mean"}))
      ->group(title_of(OptionGroup::server));
  app.add_option_function<std::string>(
         "--limit-mm-per-prompt",
         [&server](const std::string& given) {
           if (!read_image_limit(given, server.max_pictures))
             throw CLI::ValidationError("--limit-mm-per-prompt", "'" + given.substr(0, 100) + R"(' is not of the form {"image": 4})");
         },
         R"(Maximum number of images in one request, as JSON: {"image": 4}; 0: none (default 999))")
      ->type_name("JSON")
      ->group(title_of(OptionGroup::multimodal));
  // Old names of version 0.1, which are accepted for one more version and not shown in --help.
  app.add_option("--max-sound-seconds", server.max_audio_seconds)->group("");
  app.add_option("--max-sound-bytes-in-flight", server.max_audio_bytes_in_flight)->group("");
}

void add_key_flags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--tenant-keys-file", flags.tenant_keys_file,
                 "File with lines NAME=KEY. A client with such a key is the tenant of that name: it cannot operate or monitor the server, "
                 "and sees only its own requests and answers. A tenant may have several keys")
      ->type_name("PATH");
  app.add_option("--tenant-key", flags.tenant_keys,
                 "One tenant key, as a line of --tenant-keys-file; repeatable. Other users of this machine can see it, so prefer the file")
      ->type_name("NAME=KEY");
}

void add_log_flags(CLI::App& app, ServeFlags& flags) {
  add_choice<LogLevel>(
      app, "--log-level", flags.log.level, "Lowest level of log lines written to stderr (default info)",
      {{"debug", LogLevel::debug}, {"info", LogLevel::info}, {"warn", LogLevel::warn}, {"error", LogLevel::error}, {"off", LogLevel::off}});
  add_choice<LogFormat>(app, "--log-format", flags.log.format, "Format of log lines: text, or one JSON object per line (default text)",
                        {{"text", LogFormat::text}, {"json", LogFormat::json}});
}

}  // namespace

// Adds the flags of the file of flags, of the model's names (there may be several), of the chat template and of the generation config.
void add_name_flags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--config", flags.config_file,
                 "YAML file with flags, as of vLLM: a line 'port: 8000' for --port 8000, and 'model: PATH' for MODEL. The command line and "
                 "environment variables have priority")
      ->type_name("FILE");
  app.remove_option(app.get_option("--served-model-name"));
  app.add_option("--served-model-name", flags.served_names,
                 "Model names in the API; answers have the first one (default: the name of the file or folder)")
      ->type_name("NAME...");
  app.add_option("--chat-template", flags.chat_template_file, "File with the chat template that replaces the template of the model")
      ->type_name("FILE");
  app.add_option("--generation-config", flags.generation.source,
                 "Source of sampling defaults: auto (general.sampling.* of a GGUF file, else generation_config.json in the folder of the "
                 "model), vllm (none), or a folder with that file")
      ->type_name("auto|vllm|FOLDER")
      ->capture_default_str();
  app.add_option(
         "--override-generation-config", flags.generation.overrides,
         R"(Overrides of --generation-config, as JSON: {"temperature": 0.6, "max_new_tokens": 512}; max_new_tokens limits every answer)")
      ->type_name("JSON");
}

Command add_serve_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model over the OpenAI API");
  auto flags = std::make_shared<ServeFlags>();
  flags->server.handle_signals = true;
  flags->engine.scheduler.tenant_turns = true;
  flags->engine.cache.slru_share = 0.2;
  flags->engine.cache.retained_share = 0.25;
  flags->engine.step_time_target_ms = 100;
  add_engine_flags(*command, flags->engine);
  add_name_flags(*command, *flags);
  group_flags(*command, OptionGroup::model);
  add_tier_flags(*command, flags->engine, flags->tiers);
  add_lora_flags(*command, flags->lora);
  add_option_flags(*command, kServerOptions, flags->server);
  add_parsed_flags(*command, flags->server);
  add_key_flags(*command, *flags);
  add_option_flags(*command, kTenantOptions, flags->engine);
  group_flags(*command, OptionGroup::security);
  add_log_flags(*command, *flags);
  add_option_flags(*command, kCacheMetricsOptions, flags->engine.cache);
  add_option_flags(*command, kTraceOptions, flags->engine.trace);
  add_option_flags(*command, kObservationOptions, flags->engine);
  add_option_flags(*command, kJournalOptions, flags->engine.journal);
  add_option_flags(*command, kSavedJournalOptions, flags->engine.journal);
  add_kv_events_flag(*command, flags->engine.kv_events);
  group_flags(*command, OptionGroup::observability);
  command->footer(
      "Examples:\n"
      "  quire serve model.gguf\n"
      "  quire serve ./Qwen3-0.6B --kv-cache-memory 4GiB --max-model-len 8192\n"
      "  quire serve model.gguf --kv-disk /var/cache/quire --kv-disk-budget 20GiB\n"
      "  quire serve model.gguf --host 0.0.0.0 --api-key \"$KEY\"\n"
      "  quire serve --config quire.yaml\n"
      "  QUIRE_API_KEY=... QUIRE_TENANT_SECRET=... quire serve model.gguf --tenant-keys-file keys.txt\n\n"
      "Admin requests, from the same machine:\n"
      "  curl -X POST 'URL/pause?mode=keep'   keep: freeze requests; wait: let running ones finish; abort (default): end all\n"
      "  curl -X POST URL/resume              continue, also with requests that arrived meanwhile; GET URL/is_paused\n"
      "  curl -X POST URL/reset_prefix_cache  drop cached prefixes (?reset_running_requests=true while busy)\n"
      "  curl -X POST URL/v1/journal/save     save the journal of the last minutes, for quire replay\n\n"
      "SIGTERM lets running requests finish; a second SIGTERM stops immediately.");
  return {command, [command, flags]() -> Result<int> {
            // --kv-lifo excludes the two options, whose defaults were not asked for
            if (flags->engine.cache.lifo_free_blocks) {
              if (command->count("--kv-slru") == 0) flags->engine.cache.slru_share = 0.0;
              if (command->count("--kv-retention") == 0) flags->engine.cache.retained_share = 0.0;
            }
            if (auto found = find_models(flags->engine); !found) return std::unexpected(std::move(found.error()));
            return serve(*command, *flags);
          }};
}

}  // namespace quire
