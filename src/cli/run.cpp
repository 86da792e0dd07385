// quire run: generates one answer, or holds a conversation, in the terminal. Runs on the main thread. Answers are streamed to stdout, and
// times and counts are written to stderr.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <iostream>

#include "base/check.h"
#include "cli/command.h"
#include "cli/find_model.h"
#include "cli/flags/engine_flags.h"
#include "cli/output_queue.h"
#include "cli/start_engine.h"
#include "cli/terminal_answer.h"
#include "cli/terminal_input.h"
#include "quire/engine.h"
#include "quire/text/chat_template.h"
#include "quire/text/tokenizer.h"

namespace quire {

namespace {

struct RunFlags {
  EngineOptions engine;
  std::string prompt;
  std::string system;
  bool raw = false;
  bool quiet = false;
  std::string lora;  // folder of a LoRA adapter
  SamplingParams sampling;
};

struct LoadedModel {
  std::unique_ptr<OutputQueue> outputs = std::make_unique<OutputQueue>();  // must outlive the engine, which may still deliver
  std::unique_ptr<Engine> engine;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
};

Result<LoadedModel> load_model(const RunFlags& flags) {
  EngineOptions options = flags.engine;
  if (!flags.lora.empty()) options.adapters = {.max_loras = 1, .max_lora_rank = 512, .modules = {{.name = flags.lora, .path = flags.lora}}};
  auto engine = start_engine(EngineBuilder(options));
  if (!engine.has_value()) return std::unexpected(engine.error());
  auto tokenizer = Tokenizer::create(*(*engine)->model().tokenizer);
  if (!tokenizer.has_value()) return std::unexpected(tokenizer.error());
  LoadedModel model{.engine = std::move(*engine), .tokenizer = std::move(*tokenizer), .chat = std::nullopt};
  const std::string& source = model.engine->model().tokenizer->chat_template;
  if (!flags.raw && !source.empty()) {
    auto chat = ChatTemplate::parse(source);
    if (!chat.has_value()) return std::unexpected(chat.error());
    model.chat = std::move(*chat);
  }
  return model;
}

Result<std::vector<TokenId>> encode_chat(const LoadedModel& model, std::span<const ChatMessage> messages) {
  QUIRE_CHECK(model.chat.has_value(), "the model has a chat template");
  const Result<std::string> text = model.chat->render(messages, *model.tokenizer);
  if (!text.has_value()) return std::unexpected(text.error());
  return model.tokenizer->encode(*text, {.add_special = false, .parse_special = true});
}

void print_now(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Prints one answer with its times and counts, and returns its text.
Result<std::string> answer(const LoadedModel& model, std::vector<TokenId> prompt, const RunFlags& flags) {
  const std::size_t prompt_tokens = prompt.size();
  EngineRequest request{std::move(prompt), flags.sampling, {}};
  request.adapter = flags.lora;
  const auto answer = print_answer(*model.engine, *model.tokenizer, std::move(request), *model.outputs, &print_now);
  if (!answer.has_value()) return std::unexpected(answer.error());
  print_now("\n");
  if (!flags.quiet) {
    fmt::print(stderr, "[{} prompt tokens, {} cached, first token after {:.0f} ms; {} tokens, {:.1f} per second]\n", prompt_tokens,
               answer->num_cached_tokens, answer->first_token_s * 1e3, answer->num_tokens,
               answer->rest_s > 0 ? static_cast<double>(answer->num_tokens - 1) / answer->rest_s : 0.0);
  }
  return answer->text;
}

Result<int> converse(const LoadedModel& model, const RunFlags& flags) {
  std::vector<ChatMessage> messages;
  if (!flags.system.empty()) messages.push_back({"system", flags.system});
  fmt::print(stderr, "Chatting with {}. /help lists the commands, and /bye or Ctrl-D ends.\n", model.engine->model().name);
  for (TerminalInput input = read_terminal_input(std::cin, &print_now); input.kind != TerminalInput::Kind::end;
       input = read_terminal_input(std::cin, &print_now)) {
    if (input.kind == TerminalInput::Kind::help) print_now(kTerminalHelp);
    if (input.kind == TerminalInput::Kind::unknown) fmt::print(stderr, "{}\n", input.text);
    if (input.kind == TerminalInput::Kind::clear) messages.resize(flags.system.empty() ? 0 : 1);
    if (input.kind != TerminalInput::Kind::message) continue;
    messages.push_back({"user", input.text});
    auto prompt = encode_chat(model, messages);
    if (!prompt.has_value()) return std::unexpected(prompt.error());
    const Result<std::string> reply = answer(model, std::move(*prompt), flags);
    if (!reply.has_value()) return std::unexpected(reply.error());
    messages.push_back({"assistant", *reply});
  }
  return 0;
}

Result<int> run(const RunFlags& flags) {
  auto model = load_model(flags);
  if (!model.has_value()) return std::unexpected(model.error());
  if (flags.prompt.empty()) {
    return model->chat.has_value()
               ? converse(*model, flags)
               : fail(ErrorCode::invalid_argument, "PROMPT", "this model has no chat template", "pass a prompt to continue");
  }
  std::vector<ChatMessage> messages;
  if (!flags.system.empty()) messages.push_back({"system", flags.system});
  messages.push_back({"user", flags.prompt});
  auto prompt = model->chat.has_value() ? encode_chat(*model, messages) : model->tokenizer->encode(flags.prompt);
  if (!prompt.has_value()) return std::unexpected(prompt.error());
  const Result<std::string> reply = answer(*model, std::move(*prompt), flags);
  return reply.has_value() ? Result<int>(0) : std::unexpected(reply.error());
}

}  // namespace

Command add_run_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Answer one prompt, or chat in the terminal");
  auto flags = std::make_shared<RunFlags>();
  flags->sampling.max_tokens = 512;
  flags->sampling.temperature = 0.7F;
  add_engine_flags(*command, flags->engine);
  command->add_option("prompt", flags->prompt, "Prompt; without it an interactive chat starts")->type_name("PROMPT");
  command->add_option("--system", flags->system, "System message");
  command->add_flag("--raw", flags->raw, "Complete the prompt without applying the chat template");
  command->add_option("--lora", flags->lora, "LoRA adapter to use: a PEFT folder")->type_name("FOLDER");
  command->add_flag("--quiet", flags->quiet, "Do not print statistics after an answer");
  command->add_option("--max-tokens", flags->sampling.max_tokens, "Maximum length of an answer, in tokens")->capture_default_str();
  command->add_option("--temperature", flags->sampling.temperature, "Sampling temperature; 0: greedy")->capture_default_str();
  command
      ->add_option("--top-p", flags->sampling.top_p,
                   "Sample from the most likely tokens whose total probability is this value (nucleus sampling)")
      ->capture_default_str();
  command->add_option("--top-k", flags->sampling.top_k, "Sample from the k most likely tokens; 0: from all tokens")->capture_default_str();
  command->footer(
      "In a chat, /help lists the commands, and \"\"\" begins and ends a message of several lines.\n\n"
      "Examples:\n  quire run model.gguf\n  quire run model.gguf \"Name three rivers.\" --temperature 0\n"
      "  quire run model.gguf --raw \"Once upon a time\" --max-tokens 64");
  return {command, [flags]() -> Result<int> {
            if (auto found = find_models(flags->engine); !found) return std::unexpected(std::move(found.error()));
            return run(*flags);
          }};
}

}  // namespace quire
