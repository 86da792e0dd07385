// Embeds the library: opens a model that does not exist and expects an error with its path; hashes blocks with a custom function.
#include <cstdio>

#include "../support/toy_tier.h"  // connector and transport of the engine's tests: it needs only installed headers
#include "quire/core.h"
#include "quire/engine_builder.h"
#include "quire/hash_function.h"

// FNV-1a over the parent's block hash and the tokens. For tests only, because collisions are easy to construct.
struct OwnNames : quire::HashFunction {
  quire::BlockHash hash(const quire::BlockHash* parent, const quire::HashInput& input) override {
    std::uint64_t sum = 14695981039346656037U;
    const auto add = [&sum](std::uint64_t value) { sum = (sum ^ value) * 1099511628211U; };
    if (parent != nullptr) add(parent->prefix());
    for (const quire::TokenId token : input.tokens) add(static_cast<std::uint64_t>(token));
    quire::BlockHash name;
    std::memcpy(name.bytes.data(), &sum, sizeof sum);
    ++num_named;
    return name;
  }
  int num_named = 0;
};

static bool names_blocks() {
  quire::FullAttentionSpec layer;
  layer.block_size = 4;
  quire::CoreConfig config;
  config.block_size = 4;
  config.kv = {.num_blocks = 9, .groups = {{.layer_names = {"layer"}, .spec = layer, .layer_specs = {}}}};
  config.scheduler.max_model_len = 32;
  OwnNames names;
  const auto core = quire::Core::create(config, {.hash = &names});
  const std::vector<quire::TokenId> prompt(10, 7);
  return core && (*core)->add({.id = {1}, .prompt = prompt, .max_tokens = 1}) && names.num_named == 2 &&
         (*core)->view({1})->block_hashes.size() == 64;
}

int main() {
  const auto engine = quire::EngineBuilder({.model = "/nonexistent/model.gguf"}).build();
  if (engine.has_value() || engine.error().to_string().find("/nonexistent/model.gguf") == std::string::npos) {
    std::fputs("the builder did not name the missing file\n", stderr);
    return 1;
  }
  std::puts(engine.error().to_string().c_str());
  if (!names_blocks()) return std::fputs("the core did not take a name of one's own\n", stderr), 1;
  return 0;
}
