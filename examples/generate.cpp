// Completes a text with the most probable tokens.
//   generate MODEL.gguf "The capital of France is"
#include <cstdio>
#include <cstdlib>

#include "quire/engine_builder.h"
#include "quire/text/tokenizer.h"

template <class T>
T value(quire::Result<T> result) {
  if (!result) std::fprintf(stderr, "%s\n", result.error().to_string().c_str()), std::exit(1);
  return *std::move(result);
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: generate MODEL.gguf TEXT\n"), 2;
  const auto engine = value(quire::EngineBuilder({.model = argv[1]}).build());
  const auto tokenizer = value(quire::Tokenizer::create(*engine->model().tokenizer));
  quire::EngineRequest request{.prompt = value(tokenizer->encode(argv[2])), .sampling = {}};
  request.sampling.max_tokens = 16;
  request.sampling.temperature = 0;
  const quire::RequestOutput output = value(engine->generate(std::move(request)));
  std::puts(tokenizer->decode(output.tokens).c_str());
}
