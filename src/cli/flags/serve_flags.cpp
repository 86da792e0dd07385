// Adds the flags of `quire serve` and turns their values into an engine and the options of its server. Used by one thread, while a front
// end starts.
#include "cli/flags/serve_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/flag_needs.h"
#include "cli/flags/kv_events_flag.h"
#include "cli/flags/option_flags.h"
#include "quire/engine_option_table.h"
#include "quire/server_option_table.h"
#include "server/http/tenants.h"

namespace quire {

namespace {

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
  if (const auto read = read_tenant_key_flags(flags, options); !read) return std::unexpected(read.error());
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

// Adds the flags of the file of flags, of the model's names (there may be several), of the chat template and of the generation config.
void add_name_flags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--config", flags.config_file,
                 "YAML file with flags, as of vLLM: a line 'port: 8000' for --port 8000, and 'model: PATH' for MODEL. The command line and "
                 "environment variables have priority")
      ->type_name("FILE");
  app.remove_option(app.get_option("--served-model-name"));
  app.add_option(
         "--served-model-name", flags.served_names,
         "Model names in the API; answers have the first one. Further names may be patterns, such as gpt-* (default: the name of the file "
         "or folder)")
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

}  // namespace

void add_serve_flags(CLI::App& app, ServeFlags& flags) {
  flags.engine.scheduler.tenant_turns = true;
  flags.engine.cache.slru_share = 0.2;
  flags.engine.cache.retained_share = 0.25;
  flags.engine.step_time_target_ms = 100;
  add_engine_flags(app, flags.engine);
  add_name_flags(app, flags);
  group_flags(app, OptionGroup::model);
  add_tier_flags(app, flags.engine, flags.tiers);
  add_lora_flags(app, flags.lora);
  add_option_flags(app, kServerOptions, flags.server);
  add_parsed_flags(app, flags.server);
  add_key_flags(app, flags);
  add_option_flags(app, kTenantOptions, flags.engine);
  group_flags(app, OptionGroup::security);
  add_log_flags(app, flags);
  add_option_flags(app, kCacheMetricsOptions, flags.engine.cache);
  add_option_flags(app, kTraceOptions, flags.engine.trace);
  add_option_flags(app, kObservationOptions, flags.engine);
  add_option_flags(app, kJournalOptions, flags.engine.journal);
  add_option_flags(app, kSavedJournalOptions, flags.engine.journal);
  add_kv_events_flag(app, flags.engine.kv_events);
  group_flags(app, OptionGroup::observability);
}

Result<ServePlan> plan_serving(const CLI::App& command, const ServeFlags& flags) {
  auto generation = read_generation_config(flags.engine.model, flags.generation);
  if (!generation.has_value()) return std::unexpected(generation.error());
  auto server = server_options_of(flags, *generation);
  if (!server.has_value()) return std::unexpected(server.error());
  auto connectors = connectors_of(flags.tiers);
  if (!connectors.has_value()) return std::unexpected(connectors.error());
  auto adapters = adapter_options(flags.lora);
  if (!adapters.has_value()) return std::unexpected(adapters.error());
  EngineOptions options = flags.engine;
  // --kv-lifo excludes the two options, whose defaults were not asked for.
  if (options.cache.lifo_free_blocks) {
    if (command.count("--kv-slru") == 0) options.cache.slru_share = 0.0;
    if (command.count("--kv-retention") == 0) options.cache.retained_share = 0.0;
  }
  if (std::uint32_t& most = options.max_tenant_waiting; most == 0 && !server->tenant_keys.empty())
    most = tenant_share(options.scheduler.max_num_waiting, *server);
  options.adapters = *std::move(adapters);
  if (!flags.served_names.empty()) options.served_model_name = flags.served_names.front();
  const auto logger = std::make_shared<Logger>(flags.log);
  EngineBuilder engine(std::move(options));
  engine.logger(logger)
      .kv_disk(flags.tiers.kv_disk)
      .kv_dram(flags.tiers.kv_dram)
      .kv_remote(flags.tiers.kv_remote)
      .kv_peer(flags.tiers.kv_peer)
      .kv_peer_cache(flags.tiers.kv_peer_cache)
      .connectors(*std::move(connectors));
  return ServePlan{std::move(engine), *std::move(server), *std::move(generation), logger};
}

Result<void> read_tenant_key_flags(const ServeFlags& flags, ServerOptions& options) {
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
  return {};
}

void warn_of_unused_flags(const CLI::App& command, const ServeFlags& flags, const ServerOptions& options, const Engine& engine,
                          Logger& logger) {
  for (const Error& idle : flags_without_effect(command, {engine.options(), options, flags.tiers, flags.lora, engine.model()}))
    logger.write(LogLevel::warn, "flag_without_effect",
                 {{"flag", idle.field}, {"why", fmt::format("{}. To use it, {}.", idle.message, idle.remedy)}});
}

}  // namespace quire
