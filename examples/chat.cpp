// Asks a model one question, with the engine, the tokenizer and the chat template in one program.
//   chat MODEL.gguf "Name three rivers."
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "quire/engine_builder.h"
#include "quire/text/chat_template.h"
#include "quire/text/detokenizer.h"
#include "quire/text/tokenizer.h"

// Passes outputs to main(). deliver() is called on the engine's thread.
struct Sink : quire::OutputSink {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<quire::RequestOutput> outputs;
  void deliver(std::vector<quire::RequestOutput> fresh) override {
    const std::lock_guard lock(mutex);
    for (auto& output : fresh) outputs.push_back(std::move(output));
    changed.notify_one();
  }
  std::vector<quire::RequestOutput> take() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !outputs.empty(); });
    return std::exchange(outputs, {});
  }
};

template <class T>
T value(quire::Result<T> result) {
  if (!result) std::fprintf(stderr, "%s\n", result.error().to_string().c_str()), std::exit(1);
  return *std::move(result);
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: chat MODEL.gguf QUESTION\n"), 2;
  Sink sink;
  const auto engine = value(quire::EngineBuilder({.model = argv[1]}).build());
  const quire::TokenizerSpec& spec = *engine->model().tokenizer;
  const auto tokenizer = value(quire::Tokenizer::create(spec));
  const auto chat = value(quire::ChatTemplate::parse(spec.chat_template));
  const std::vector<quire::ChatMessage> messages = {{"user", argv[2]}};
  const auto text = value(chat.render(messages, *tokenizer));
  quire::EngineRequest request{.prompt = value(tokenizer->encode(text, {.add_special = false, .parse_special = true})), .sampling = {}};
  request.sampling.max_tokens = 48;
  request.sampling.temperature = 0;
  value(engine->submit(std::move(request), sink));
  quire::Detokenizer words(*tokenizer);
  for (bool finished = false; !finished;) {
    for (const quire::RequestOutput& output : sink.take()) {
      for (const quire::TokenId token : output.tokens) std::printf("%s", std::string(words.push(token)).c_str());
      finished = output.finished;
    }
  }
  std::puts("");
  engine->stop(0);
}
