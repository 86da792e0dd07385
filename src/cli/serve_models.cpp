// Reads the list of models, checks each model's flags, reads the headers of its files, and serves all of them. Runs on the main thread.
#include "cli/serve_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/format_bytes.h"
#include "base/usable_memory.h"
#include "cli/find_model.h"
#include "cli/flags/flag_names.h"
#include "cli/model_arguments.h"
#include "cli/server_url.h"
#include "quire/engine.h"
#include "server/http/descriptors.h"
#include "server/models/model_names.h"
#include "server/models/models_server.h"

namespace quire {

namespace {

Error at_model(Error error, const ListedModel& model) {
  const std::string where = model.line > 0 ? fmt::format("line {}: ", model.line) : std::string();
  const std::string field = error.field.empty() ? "" : error.field + ": ";
  error.message = fmt::format("{}model '{}': {}{}", where, model.name, field, error.message);
  error.field = "--models";
  return error;
}

std::string default_name(const std::string& path) {
  const std::filesystem::path file(path);
  return file.extension() == ".gguf" ? file.stem().string()
         : file.filename().empty()   ? file.parent_path().filename().string()
                                     : file.filename().string();
}

// Returns the estimated memory of the process: weights, KV cache, the draft model's weights, the tier in host memory, and swap.
Result<std::uint64_t> memory_of(const ModelInfo& model, const EngineOptions& engine, const TierFlags& tiers) {
  if (engine.cache.kv_cache_bytes == 0 && engine.cache.num_blocks == 0)
    return fail(ErrorCode::invalid_argument, "", "--kv-cache-memory auto would take the memory of the other models", "give a size");
  std::uint64_t bytes = model.weight_bytes;
  if (const std::uint64_t held = engine.weights.expert_bytes; held > 0 && held < model.expert_bytes) bytes -= model.expert_bytes - held;
  if (engine.cache.num_blocks == 0)
    bytes += engine.cache.kv_cache_bytes;
  else if (const auto layout = plan_kv_layout(model, engine))
    bytes += layout->total_bytes();
  if (!engine.draft_model.empty()) {
    const auto draft = inspect_model(engine.draft_model);
    if (!draft) return std::unexpected(draft.error());
    bytes += draft->weight_bytes;
  }
  return bytes + tiers.kv_dram.bytes + engine.kv_swap.bytes;
}

ModelFacts facts_of(const ModelInfo& info, const std::string& name, const EngineOptions& engine) {
  const std::uint32_t context = engine.scheduler.max_model_len > 0 ? engine.scheduler.max_model_len : info.context_length;
  return {.details = ollama_details(info, engine.model),
          .ollama_show = ollama_show_unloaded(info, name, engine.model, context),
          .weight_bytes = info.weight_bytes,
          .max_model_len = context,
          .supports_images = info.pictures.any(),
          .supports_audio = info.has_encoder()};
}

// Prepares one model. A model whose headers cannot be read stays in the list of a file: its requests get the error.
Result<ModelEntry> entry_of(const CLI::App& command, const ServeFlags& common, ListedModel model) {
  std::error_code ignored;
  const bool is_named = !model.name.empty();
  if (!is_named) model.name = default_name(model.model);
  auto prepared = prepare_model(command, model);
  if (!prepared) return std::unexpected(std::move(prepared.error()));
  ServeFlags& flags = *prepared->flags;
  EngineOptions& engine = flags.engine;
  if (auto found = find_models(engine); !found) return std::unexpected(at_model(std::move(found.error()), model));
  if (!std::filesystem::exists(engine.model, ignored))
    return std::unexpected(
        at_model({ErrorCode::not_found, "", fmt::format("'{}' does not exist", engine.model), "correct 'model'"}, model));
  ModelEntry entry{.name = is_named || engine.served_model_name.empty() ? model.name : engine.served_model_name,
                   .aliases = std::move(model.aliases),
                   .arguments = {engine.model},
                   .environment = std::move(prepared->environment),
                   .adapters = {},
                   .memory_bytes = 0,
                   .facts = {}};
  entry.arguments.insert(entry.arguments.end(), prepared->arguments.begin(), prepared->arguments.end());
  for (const std::string& module : flags.lora.modules)
    if (const auto parsed = parse_lora_module(module)) entry.adapters.push_back(parsed->name);
  const auto info = inspect_model(engine.model, engine.mmproj);
  if (!info) {
    fmt::print(stderr, "quire: model '{}' cannot be loaded: {}\n", entry.name, info.error().to_string());
    return entry;
  }
  flags.server.api_key = common.server.api_key;
  flags.tenant_keys = common.tenant_keys;
  const CLI::App& serve = *prepared->app->get_subcommand("serve");
  if (auto plan = plan_serving(serve, flags); !plan) return std::unexpected(at_model(as_flag(serve, std::move(plan.error())), model));
  auto memory = memory_of(*info, engine, flags.tiers);
  if (!memory) return std::unexpected(at_model(std::move(memory.error()), model));
  entry.memory_bytes = *memory;
  entry.facts = facts_of(*info, entry.name, engine);
  return entry;
}

// Returns an error that names two models with the same folder, which only one of their processes could use.
Result<void> check_folders(const std::vector<ModelEntry>& entries) {
  for (std::size_t i = 0; i < entries.size(); ++i)
    for (std::size_t other = 0; other < i; ++other)
      if (const auto shared = folder_argument(entries[i].arguments, entries[other].arguments))
        return fail(ErrorCode::invalid_argument, "--models",
                    fmt::format("the models '{}' and '{}' both have {}", entries[other].name, entries[i].name, *shared),
                    "set another path in the 'flags' of one of them");
  return {};
}

Result<ModelsOptions> models_options(const CLI::App& command, const ServeFlags& common, const ModelsFlags& flags) {
  auto list = read_models(flags.path);
  if (!list) return std::unexpected(std::move(list.error()));
  ModelsOptions options;
  for (ListedModel& model : list->models) {
    auto entry = entry_of(command, common, std::move(model));
    if (!entry) return std::unexpected(std::move(entry.error()));
    options.entries.push_back(*std::move(entry));
  }
  if (auto checked = check_names(options.entries); !checked) {
    checked.error().field = "--models";
    return std::unexpected(std::move(checked.error()));
  }
  if (const auto checked = check_folders(options.entries); !checked) return std::unexpected(checked.error());
  const ModelsLimits &given = flags.limits, &listed = list->limits;
  const auto limit = [](const auto& first, const auto& second, auto fallback) { return first ? *first : second.value_or(fallback); };
  options.max_loaded = limit(given.max_loaded, listed.max_loaded, options.max_loaded);
  options.idle_s = limit(given.idle_s, listed.idle_s, options.idle_s);
  options.max_wait_s = std::max(1U, limit(given.wait_s, listed.wait_s, options.max_wait_s));
  options.max_waiting = std::max(1U, limit(given.max_waiting, listed.max_waiting, options.max_waiting));
  options.memory_bytes = limit(given.memory_bytes, listed.memory_bytes, options.memory_bytes);
  if (options.memory_bytes == 0) options.memory_bytes = usable_memory_bytes() / 10 * 9;
  options.program = "/proc/self/exe";
  std::error_code error;
  if (const auto program = std::filesystem::read_symlink("/proc/self/exe", error); !error && std::filesystem::exists(program, error))
    options.program = program.string();
  return options;
}

void print_models(const ModelsOptions& models, const ServerOptions& options, std::uint16_t port) {
  const std::string url = server_url(options.host, port);
  fmt::print("quire serves {} models on {}\n", models.entries.size(), url);
  for (const ModelEntry& entry : models.entries) {
    const bool fits = models.memory_bytes == 0 || entry.memory_bytes <= models.memory_bytes;
    fmt::print("  {}: about {} of memory{}{}\n", entry.name, entry.memory_bytes == 0 ? "unknown" : format_bytes(entry.memory_bytes),
               fits ? "" : ", more than all models may use", &entry == models.entries.data() ? "; used by requests without a model" : "");
  }
  if (models.memory_bytes > 0)
    fmt::print("All loaded models together use at most {} (--models-memory)\n", format_bytes(models.memory_bytes));
  fmt::print("Chat page: {0}/   models: {0}/v1/models   metrics: {0}/metrics, {0}/upstream/NAME/metrics\n", url);
  std::fflush(stdout);
}

}  // namespace

Result<int> serve_models(const CLI::App& command, const ServeFlags& flags, const ModelsFlags& models_flags) {
  if (!flags.engine.model.empty())
    return fail(ErrorCode::invalid_argument, "MODEL", "cannot be combined with --models", "list the model in the file of --models");
  ServerOptions options = flags.server;
  if (const auto read = read_tenant_key_flags(flags, options); !read) return std::unexpected(read.error());
  if (const auto valid = options.validate(); !valid) return std::unexpected(valid.error());
  auto models = models_options(command, flags, models_flags);
  if (!models) return std::unexpected(std::move(models.error()));
  auto port = BoundPort::bind(options);
  if (!port) return std::unexpected(port.error());
  // Not as arguments, which other users of the machine can see.
  std::vector<std::string> environment;
  if (!options.api_key.empty()) environment.push_back("QUIRE_API_KEY=" + options.api_key);
  if (!options.tenant_secret.empty()) environment.push_back("QUIRE_TENANT_SECRET=" + options.tenant_secret);
  if (!flags.tenant_keys.empty()) environment.push_back(fmt::format("{}={}", kTenantKeysVariable, fmt::join(flags.tenant_keys, "\n")));
  const auto logger = std::make_shared<Logger>(flags.log);
  raise_descriptor_limit();
  auto server = ModelsServer::create(*models, options, std::move(environment), *logger, *std::move(port));
  if (!server) return std::unexpected(server.error());
  print_models(*models, options, (*server)->port());
  (*server)->run();
  fmt::print("Stopped: all models are unloaded.\n");
  return 0;
}

}  // namespace quire
