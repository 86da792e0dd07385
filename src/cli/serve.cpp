// quire serve: the OpenAI API for one model.
// On the main thread: describes its flags, makes the engine and the server, and serves until a signal. An error ends with its text on
// stderr and a code other than 0; nothing is printed to stdout before the server listens, since scripts wait for that line.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "cli/command.h"
#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/journal_flags.h"
#include "cli/flags/kv_events_flag.h"
#include "cli/flags/lora_flags.h"
#include "cli/flags/picture_flags.h"
#include "cli/flags/tier_flags.h"
#include "cli/kv_lines.h"
#include "cli/start_engine.h"
#include "quire/base/logger.h"
#include "quire/engine.h"
#include "quire/server.h"
#include "quire/server_options.h"
#include "server/http/descriptors.h"
#include "server/http/tenants.h"

namespace quire {

namespace {

struct ServeFlags {
  EngineOptions engine;
  ServerOptions server;
  std::vector<std::string> served_names;
  std::string chat_template_file;
  GenerationConfigOptions generation;
  std::vector<std::string> tenant_keys;
  std::string tenant_keys_file;
  LogOptions log;
  TierFlags tiers;
  LoraFlags lora;
};

void print_kv_disk(const KvTierStats& tier, const std::string& folder) {
  fmt::print("KV disk: {} places of {} in {}, budget {} (--kv-disk-budget)", tier.num_places, format_bytes(tier.place_bytes), folder,
             format_bytes(tier.budget_bytes));
  if (tier.num_unread_places > 0) fmt::print("; what was stored there before is being looked up");
  if (tier.num_unread_places == 0) fmt::print("; {} hold blocks already", tier.num_used_places);
  fmt::print("\n");
}

// Options whose flags have their names.
constexpr std::array<std::string_view, 34> kNamedAsFlags{"kv_dram",
                                                         "kv_disk",
                                                         "kv_disk_budget",
                                                         "kv_remote",
                                                         "kv_remote_key",
                                                         "kv_remote_ca",
                                                         "kv_remote_budget",
                                                         "kv_remote_ttl",
                                                         "kv_role",
                                                         "kv_host",
                                                         "kv_port",
                                                         "kv_key",
                                                         "kv_lease",
                                                         "kv_peers",
                                                         "kv_share",
                                                         "kv_disk_policy",
                                                         "kv_dram_policy",
                                                         "journal",
                                                         "journal_max_bytes",
                                                         "journal_memory",
                                                         "journal_save",
                                                         "kv_connector",
                                                         "kv_connector_library",
                                                         "kv_cache_metrics_sample",
                                                         "max_loras",
                                                         "max_lora_rank",
                                                         "max_cpu_loras",
                                                         "kv_swap",
                                                         "kv_swap_disk",
                                                         "kv_swap_disk_budget",
                                                         "weights_cache",
                                                         "weights_cache_budget",
                                                         "expert_memory",
                                                         "speculative_model"};

// The engine names its options, and these are given as flags.
Error as_flag(Error error) {
  if (std::ranges::find(kNamedAsFlags, error.field) != kNamedAsFlags.end()) {
    std::ranges::replace(error.field, '_', '-');
    error.field.insert(0, "--");
  }
  for (const auto& [field, flag] : {std::pair("store_threshold", "--kv-store-threshold"),
                                    {"max_tracked_keys", "--kv-max-tracker-size"},
                                    {"pressure.admission_watermark", "--kv-watermark"},
                                    {"pressure.pressure_high", "--kv-pressure-high"},
                                    {"pressure.pressure_preempts", "--kv-pressure-preempt"}})
    if (error.field == field) error.field = flag;
  if (error.field.starts_with("lora_modules")) error.field.replace(0, std::string_view("lora_modules").size(), "--lora-modules");
  for (const auto& [field, flag] :
       {std::pair("generation_config", "--generation-config"), std::pair("override_generation_config", "--override-generation-config")})
    if (error.field == field || error.field.starts_with(std::string(field) + "."))
      error.field.replace(0, std::string_view(field).size(), flag);
  return error;
}

void print_kv_cache(const Engine& engine) {
  const EngineOptions& options = engine.options();
  const Result<KvLayout> layout = plan_kv_layout(engine.model(), options);
  if (!layout) return;
  fmt::print("KV cache: {} blocks, {}; up to {} requests run at once, of at most {} tokens\n", layout->num_blocks - 1,
             describe_kv_cost(*layout), options.scheduler.max_num_seqs, options.scheduler.max_model_len);
  if (layout->groups.size() > 1)
    for (const std::string& line : describe_kv_groups(*layout)) fmt::print("  {}\n", line);
}

void print_ready(const Server& server, const ServerOptions& options, const Engine& engine, const std::string& kv_disk, double seconds) {
  const std::string url = fmt::format("http://{}:{}", options.host, server.port());
  fmt::print("quire serves {} on {} (ready after {:.2f} s)\n", server.model_name(), url, seconds);
  print_kv_cache(engine);
  if (const std::uint64_t bytes = engine.options().weights.expert_bytes; bytes > 0)
    fmt::print("Experts: {} of {} in memory (--expert-memory), the others are read from {} when they are wanted\n",
               format_bytes(std::min(bytes, engine.model().expert_bytes)), format_bytes(engine.model().expert_bytes),
               engine.options().weights.cache_folder);
  if (const EngineOptions& made = engine.options(); !made.draft_model.empty())
    fmt::print("Drafts: up to {} tokens of {} (--speculative-model)\n", made.speculation.num_speculative_tokens, made.draft_model);
  for (const std::string& note : engine.model().notes)
    if (note.starts_with("packed weights: ")) fmt::print("{}\n", note);
  if (const auto swap = engine.stats().kv_swap)
    fmt::print("KV swap: {} places of {} for preempted requests (--kv-swap)\n", swap->num_places, format_bytes(swap->place_bytes));
  for (const KvTierStats& tier : engine.stats().kv_tiers)
    if (tier.name == "disk")
      print_kv_disk(tier, kv_disk);
    else if (tier.name == "remote")
      fmt::print("KV remote: {} blocks of {} at most, budget {} (--kv-remote-budget)\n", tier.num_places, format_bytes(tier.place_bytes),
                 format_bytes(tier.budget_bytes));
    else if (tier.name == "peer_cache")
      fmt::print("KV peers: up to {} blocks of {} that others hold are known (--kv-peers, --kv-share)\n", tier.num_places,
                 format_bytes(tier.place_bytes));
    else if (tier.name == "peer")
      continue;
    else
      fmt::print("KV DRAM: {} places of {} (--kv-dram)\n", tier.num_places, format_bytes(tier.place_bytes));
  if (server.max_connections() < options.max_connections) {
    fmt::print("At most {} connections, not {}: the limit of open files (ulimit -Hn) allows no more\n", server.max_connections(),
               options.max_connections);
  }
  if (const std::string defaults = describe(options.generation_defaults); !defaults.empty())
    fmt::print("Requests that do not say it have: {} (--generation-config)\n", defaults);
  for (const AdapterInfo& adapter : engine.adapters())
    fmt::print("LoRA adapter {}: rank {}, {}, {}\n", adapter.name, adapter.rank, format_bytes(adapter.bytes), adapter.path);
  if (!server.chat_problem().empty()) fmt::print("No chat with this model: {}\n", server.chat_problem());
  fmt::print("Chat page: {}/   dashboard: {}/dashboard   metrics: {}/metrics\nTry:\n", url, url, url);
  const char* key = options.api_key.empty() && options.tenant_keys.empty() ? "" : " -H 'Authorization: Bearer YOUR_KEY'";
  if (engine.model().has_encoder())
    fmt::print("  curl {}/v1/audio/transcriptions{} -F file=@recording.mp3\n", url, key);
  else
    fmt::print("  curl {}/v1/chat/completions -H 'Content-Type: application/json'{} \\\n    -d '{}'\n", url, key,
               R"({"messages": [{"role": "user", "content": "Name three rivers."}], "max_tokens": 64})");
  std::fflush(stdout);
}

Result<ServerOptions> server_options_of(const ServeFlags& flags) {
  ServerOptions options = flags.server;
  for (std::size_t i = 1; i < flags.served_names.size(); ++i) options.served_model_aliases.push_back(flags.served_names[i]);
  if (!flags.chat_template_file.empty()) {
    std::ifstream file(flags.chat_template_file);
    options.chat_template.assign(std::istreambuf_iterator<char>(file), {});
    if (!file || options.chat_template.empty())
      return fail(ErrorCode::not_found, "--chat-template", fmt::format("'{}' cannot be read, or is empty", flags.chat_template_file),
                  "name a file with a Jinja template");
  }
  auto defaults = read_generation_config(flags.engine.model, flags.generation);
  if (!defaults.has_value()) return std::unexpected(as_flag(defaults.error()));
  options.generation_defaults = *defaults;
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

Result<int> serve(const ServeFlags& flags) {
  const auto options = server_options_of(flags);
  if (!options.has_value()) return std::unexpected(options.error());
  auto connectors = connectors_of(flags.tiers);
  if (!connectors.has_value()) return std::unexpected(as_flag(connectors.error()));
  const auto start = std::chrono::steady_clock::now();
  const auto logger = std::make_shared<Logger>(flags.log);
  EngineOptions engine_options = flags.engine;
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
  if (!engine.has_value()) return std::unexpected(as_flag(engine.error()));
  raise_descriptor_limit();
  auto server = Server::create(**engine, *options, *logger);
  if (!server.has_value()) return std::unexpected(server.error());
  print_ready(**server, *options, **engine, flags.tiers.kv_disk.folder,
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  (*server)->run();
  const std::uint32_t aborted = (*engine)->stop(0.0);
  fmt::print("Stopped; {} requests aborted, all blocks free.\n", aborted);
  return 0;
}

void add_server_flags(CLI::App& app, ServerOptions& server) {
  app.add_option("--host", server.host, "Address to listen on; 0.0.0.0 opens it to the network: set --api-key then")->capture_default_str();
  app.add_option("--port", server.port, "Port; 0: any free one")->capture_default_str();
  app.add_flag("--allow-remote-admin", server.allow_remote_admin,
               "Let clients on other machines pause, resume and reset the prefix cache; needs --api-key (default: this machine only)");
  app.add_option(
      "--allowed-host", server.allowed_hosts,
      "A name besides localhost under which clients reach this over loopback, as a proxy here passes it on; repeatable, '*': any");
  app.add_option("--cors-allow-origin", server.cors_allow_origins,
                 "Web pages that may use this server, such as https://chat.example.com; repeatable, '*': any (default: its own chat page)");
  app.add_option("--trusted-proxy", server.trusted_proxies,
                 "IP address of a proxy whose Forwarded or X-Forwarded-For header says who is on this machine; repeatable (default: none)");
  app.add_option("--max-body-bytes", server.max_body_bytes, "Largest request body")->capture_default_str();
  app.add_option("--max-sound-seconds", server.max_sound_seconds, "Longest recording that is transcribed")->capture_default_str();
  app.add_option("--max-sound-bytes-in-flight", server.max_sound_bytes_in_flight,
                 "Memory for all recordings that are heard, 64000 bytes a second")
      ->capture_default_str();
  app.add_option("--max-body-bytes-in-flight", server.max_body_bytes_in_flight,
                 "Bodies of all connections together, until they are parsed; beyond it clients are told to come again (503)")
      ->capture_default_str();
  app.add_option("--max-connections", server.max_connections, "Connections at once; beyond it the longest idle one makes room")
      ->capture_default_str();
  app.add_option("--session-timeout-ms", server.session_timeout_ms,
                 "How long a session of /v1/completions may wait for more of its prompt; it holds KV blocks meanwhile")
      ->capture_default_str();
  app.add_option("--response-store", server.max_response_store_bytes,
                 "Answers of /v1/responses kept in memory, so that clients may go on from them; 0: none")
      ->transform(bytes_flag())
      ->default_str("64MiB");
  app.add_flag("--strict-fields", server.strict_fields,
               "Refuse requests with fields, or tools, that would be ignored (default: X-Quire-Ignored-Fields names them)");
  app.add_flag("--tool-call-one-spelling", server.one_call_spelling,
               "Hold arguments of tools to one spelling of each value, so that equal calls are equal text (default: what JSON allows)");
  app.add_flag("--enable-return-routed-experts", server.enable_return_routed_experts,
               "Whole answers tell which experts each token has gone through (routed_experts), unless a request says no; those who do read "
               "no prefix cache");
  app.add_option("--drain-timeout-ms", server.drain_timeout_ms, "How long running requests may go on after SIGTERM")->capture_default_str();
}

void add_pooling_flags(CLI::App& app, ServerOptions& server) {
  app.add_option_function<std::string>(
         "--pooling",
         [&server](const std::string& name) {
           server.pooling = name == "mean" ? PoolingKind::mean : name == "cls" ? PoolingKind::first : PoolingKind::last;
         },
         "Of which tokens /v1/embeddings makes a vector (default: as the model's files say, or else the last one)")
      ->check(CLI::IsMember({"last", "cls", "mean"}));
  app.add_option("--hidden-states", server.hidden_states_folder,
                 "Calls may have the hidden states of their prompts written into this folder (kv_transfer_params)")
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR");
  app.add_flag("--matryoshka", server.is_matryoshka,
               "Shorter vectors may be asked for (dimensions), though the model's files do not say so");
}

void add_key_flags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--api-key", flags.server.api_key, "Clients must send it as a Bearer token, unless they are tenants")
      ->envname("QUIRE_API_KEY");
  app.add_option("--tenant-keys-file", flags.tenant_keys_file,
                 "Lines NAME=KEY: who sends such a key is the tenant of that name, may not operate or watch the server, and forks its own "
                 "requests only; a tenant may have several keys")
      ->type_name("PATH");
  app.add_option("--tenant-key", flags.tenant_keys, "One such line; repeatable. Others on this machine can read it: prefer the file")
      ->type_name("NAME=KEY");
  app.add_option("--tenant-secret", flags.server.tenant_secret,
                 "Tenants share no cached prefixes: their blocks get names that nobody has who lacks the secret (default: equal prefixes "
                 "are shared by all)")
      ->envname("QUIRE_TENANT_SECRET");
}

void add_log_flags(CLI::App& app, ServeFlags& flags) {
  add_choice<LogLevel>(
      app, "--log-level", flags.log.level, "Least important lines of the log on stderr (default info)",
      {{"debug", LogLevel::debug}, {"info", LogLevel::info}, {"warn", LogLevel::warn}, {"error", LogLevel::error}, {"off", LogLevel::off}});
  add_choice<LogFormat>(app, "--log-format", flags.log.format, "One line per event: text, or a JSON object (default text)",
                        {{"text", LogFormat::text}, {"json", LogFormat::json}});
  app.add_option("--otlp-traces-endpoint", flags.server.otlp_traces_endpoint,
                 "Send a span of each request to this OpenTelemetry collector, as OTLP over HTTP: http://127.0.0.1:4318/v1/traces. They "
                 "continue traces that clients began (traceparent)")
      ->type_name("URL");
  app.add_option("--otlp-service-name", flags.server.otlp_service_name, "What these spans say that they are of")
      ->envname("OTEL_SERVICE_NAME")
      ->capture_default_str();
  app.add_option("--log-slow-ms", flags.server.log_slow_ms, "Requests that take this long are warnings; 0: none are")
      ->capture_default_str();
}

void add_trace_flags(CLI::App& app, EngineOptions& options) {
  TraceOptions& trace = options.trace;
  app.add_option(
         "--trace", trace.path,
         "Record each step of the scheduler in PATH.steps.jsonl and PATH.requests.jsonl, prompt tokens included; quire trace shows it")
      ->type_name("PATH");
  app.add_option("--trace-every", trace.every, "Only every n-th step")->capture_default_str();
  app.add_option("--trace-max-steps", trace.max_steps, "No more than so many steps; 0: no limit")->capture_default_str();
  app.add_option("--trace-file-bytes", trace.max_file_bytes, "Largest file; then it becomes FILE.1, and a new one begins")
      ->capture_default_str();
  app.add_option("--trace-files", trace.max_files, "Files of each kind; the oldest goes")->capture_default_str();
  app.add_option("--explained-requests", options.explained_requests,
                 "Requests that GET /v1/requests/ID/explain still knows when they have ended: why they waited, missed the cache, gave way; "
                 "0: none, and causes are not counted")
      ->capture_default_str();
  app.add_option(
         "--curve-blocks", options.curve_blocks,
         "Blocks whose reuse is followed, 28 bytes each: GET /v1/cache/curve tells from them what other sizes of the KV cache would "
         "have found; 0: none")
      ->capture_default_str();
}

void add_cache_metrics_flags(CLI::App& app, CacheOptions& cache) {
  CLI::Option* const metrics = app.add_flag("--kv-cache-metrics,!--no-kv-cache-metrics", cache.kv_cache_metrics,
                                            "Measure how long blocks are in the KV cache and lie there unused, for /metrics (default off)");
  app.add_option("--kv-cache-metrics-sample", cache.kv_cache_metrics_sample, "On this share of the blocks: above 0, at most 1")
      ->type_name("SHARE")
      ->capture_default_str()
      ->needs(metrics);
}

}  // namespace

// A server's model may have several names.
void add_name_flags(CLI::App& app, ServeFlags& flags) {
  app.remove_option(app.get_option("--served-model-name"));
  app.add_option("--served-model-name", flags.served_names,
                 "Names in the API, of which answers carry the first (default: that of the file or folder)")
      ->type_name("NAME...");
  app.add_option("--chat-template", flags.chat_template_file, "A file with the chat template to use instead of the model's own")
      ->type_name("FILE");
  app.add_option(
         "--generation-config", flags.generation.source,
         "Sampling of requests that do not say it: auto (the model's generation_config.json), vllm (none), or a folder with that file")
      ->type_name("auto|vllm|FOLDER")
      ->capture_default_str();
  app.add_option(
         "--override-generation-config", flags.generation.overrides,
         R"(What goes before that file, as JSON: {"temperature": 0.6, "max_new_tokens": 512}; its max_new_tokens limits every answer)")
      ->type_name("JSON");
}

Command add_serve_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model over the OpenAI API");
  auto flags = std::make_shared<ServeFlags>();
  flags->server.handle_signals = true;
  add_engine_flags(*command, flags->engine);
  add_name_flags(*command, *flags);
  add_tier_flags(*command, flags->engine, flags->tiers);
  add_lora_flags(*command, flags->lora);
  command->add_flag("--allow-runtime-lora-updating", flags->server.allow_runtime_lora_updating,
                    "Let who operates the server load and unload adapters while it runs: POST /v1/load_lora_adapter, "
                    "/v1/unload_lora_adapter (default off)");
  add_server_flags(*command, flags->server);
  add_picture_flags(*command, flags->server);
  add_pooling_flags(*command, flags->server);
  add_key_flags(*command, *flags);
  add_log_flags(*command, *flags);
  add_cache_metrics_flags(*command, flags->engine.cache);
  add_trace_flags(*command, flags->engine);
  add_journal_flags(*command, flags->engine.journal);
  command->add_option("--journal-save", flags->engine.journal.save_folder, "Where the last minutes are saved (default: --journal)")
      ->type_name("DIR");
  add_kv_events_flag(*command, flags->engine.kv_events);
  command->footer(
      "Examples:\n  quire serve model.gguf\n  quire serve ./Qwen3-0.6B --kv-cache-memory 4GiB --max-model-len 8192\n"
      "  quire serve model.gguf --kv-disk /var/cache/quire --kv-disk-budget 20GiB\n"
      "  quire serve model.gguf --host 0.0.0.0 --api-key \"$KEY\"\n"
      "  QUIRE_API_KEY=... QUIRE_TENANT_SECRET=... quire serve model.gguf --tenant-keys-file keys.txt\n\n"
      "Operating it, from the same machine:\n"
      "  curl -X POST 'URL/pause?mode=keep'   keep: freeze requests; wait: let running ones end; abort (default): end all\n"
      "  curl -X POST URL/resume              new requests waited meanwhile; GET URL/is_paused tells\n"
      "  curl -X POST URL/reset_prefix_cache  forget cached prefixes (?reset_running_requests=true while busy)\n"
      "  curl -X POST URL/v1/journal/save     what the scheduler did in the last minutes, as a file for quire replay\n\n"
      "SIGTERM lets running requests finish; a second one stops at once.");
  return {command, [flags]() { return serve(*flags); }};
}

}  // namespace quire
