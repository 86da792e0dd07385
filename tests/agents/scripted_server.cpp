// For tests only: runs the server, its parsers, its streams and the engine with its prefix cache, with a worker that answers from a script
// (script.h). The vocabulary comes from a real model; --max-model-len sets the context. It computes nothing.
//
//   quire_scripted_server --model model.gguf --chat-template template.jinja --script script.json --port 8000 --max-model-len 131072
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "agents/script.h"
#include "engine/engine_parts.h"
#include "engine/resolve_options.h"
#include "quire/base/logger.h"
#include "quire/server.h"
#include "runtime/model/weights/model_file.h"
#include "runtime/worker/simulated_worker.h"

namespace quire {
namespace {

struct Flags {
  std::string model, chat_template, script, trace;
  std::uint32_t max_model_len = 131'072;
  std::uint16_t port = 8000;
  bool strict_fields = false;
};

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns a model of one tiny layer with the vocabulary of --model.
Result<ModelInfo> scripted_model_info(const Flags& flags) {
  const auto file = ModelFile::open(flags.model);
  if (!file) return std::unexpected(file.error());
  auto info = file->info();
  if (!info) return info;
  info->num_layers = info->num_heads = info->num_kv_heads = info->head_dim = 1;
  info->context_length = flags.max_model_len;
  return info;
}

Result<std::unique_ptr<Engine>> scripted_engine(const Flags& flags, const ModelInfo& info, const std::shared_ptr<ScriptedModel>& model) {
  EngineOptions options;
  options.served_model_name = "scripted";
  options.scheduler.max_model_len = flags.max_model_len;
  options.scheduler.policy = SchedulingPolicy::continuum;
  options.cache.num_blocks = 4 * flags.max_model_len / options.cache.block_size;
  options.trace.path = flags.trace;
  const auto resolved = resolve_options(options, info, {1, 0});
  if (!resolved) return std::unexpected(resolved.error());
  SimulatedWorkerOptions worker{.limits = resolved->limits,
                                .block_size = resolved->options.cache.block_size,
                                .num_blocks = resolved->options.cache.num_blocks,
                                .vocab_size = info.vocab_size,
                                .next_token = [model](std::span<const TokenId> history) { return model->next_token(history); }};
  return make_engine(*resolved, {std::make_unique<SimulatedWorker>(std::move(worker))});
}

Result<int> serve_script(const Flags& flags) {
  const auto info = scripted_model_info(flags);
  if (!info) return std::unexpected(info.error());
  const auto tokenizer = Tokenizer::create(*info->tokenizer);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  auto script = Script::read(flags.script);
  if (!script) return std::unexpected(script.error());
  auto model = ScriptedModel::create(std::move(*script), **tokenizer);
  if (!model) return std::unexpected(model.error());
  auto engine = scripted_engine(flags, *info, std::make_shared<ScriptedModel>(std::move(*model)));
  if (!engine) return std::unexpected(engine.error());
  Logger logger(LogOptions{.format = LogFormat::json});
  ServerOptions options;
  options.port = flags.port;
  options.chat_template = text_of_file(flags.chat_template);
  options.strict_fields = flags.strict_fields;
  options.low_parse_priority = false;
  options.handle_signals = true;
  auto server = Server::create(**engine, options, logger);
  if (!server) return std::unexpected(server.error());
  (*server)->run();
  (*engine)->stop(0.0);
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  quire::Flags flags;
  CLI::App app("A server that answers as a script says: for tests of clients");
  app.add_option("--model", flags.model, "Whose vocabulary it has")->required();
  app.add_option("--chat-template", flags.chat_template, "A file")->required();
  app.add_option("--script", flags.script, "A file, see tests/agents/script.h")->required();
  app.add_option("--trace", flags.trace, "As quire serve's");
  app.add_option("--port", flags.port, "Port");
  app.add_option("--max-model-len", flags.max_model_len, "Context");
  app.add_flag("--strict-fields", flags.strict_fields, "As quire serve's");
  CLI11_PARSE(app, argc, argv);
  const auto served = quire::serve_script(flags);
  if (served) return *served;
  fmt::print(stderr, "{}\n", served.error().to_string());
  return 1;
}
