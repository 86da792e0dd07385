// Compares logits with transformers on small models of every architecture and weight type (tools/record/logits.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "runtime/model/logit_record.h"
#include "runtime/model/rig.h"

namespace quire {
namespace {

using tiny::LogitCase;
using tiny::LogitRecord;

// Returns the largest difference over the standard deviation of the record.
double difference(const LogitRecord& record, const LogitCase& c, const std::string& path, ActivationMode mode, KvDtype kv) {
  tiny::Rig rig(path, {.activations = mode, .kv = kv, .max_tokens = c.max_model_len});
  const auto tokens = static_cast<std::uint32_t>(record.prompt.size());
  rig.give_blocks(Slot{0}, tiny::blocks_for(tokens, 16, 3, 2));
  const auto logits = rig.run(record.prompt, {{Slot{0}, 0, tokens}});
  return tiny::largest_difference(record, c, logits, rig.vocab());
}

// Bounds apply to a type, or to one case by its name.
void expect_logits_of(const LogitRecord& record, const std::map<std::string, tiny::LogitBounds>& bounds = tiny::logit_bounds()) {
  const tiny::TempFolder folder;
  struct Worst {
    double plain = 0.0, int16 = 0.0, bf16_kv = 0.0, served = 0.0, rounded = 0.0;
  };
  std::map<std::string, Worst> worst;
  for (const LogitCase& c : record.cases) {
    const std::string path = tiny::write_model(c, folder);
    Worst& w = worst[c.type];
    const auto own = bounds.find(c.name);
    const tiny::LogitBounds& bound = own != bounds.end() ? own->second : bounds.at(c.type);
    const auto measure = [&](ActivationMode mode, KvDtype kv, double most, double& so_far) {
      const double found = difference(record, c, path, mode, kv);
      EXPECT_LE(found, most) << c.name << ", activations " << static_cast<int>(mode) << ", bf16 KV " << (kv == KvDtype::bf16);
      so_far = std::max(so_far, found);
    };
    measure(ActivationMode::f32, KvDtype::f32, bound.floats, w.plain);
    measure(ActivationMode::int16, KvDtype::f32, bound.int16, w.int16);
    measure(ActivationMode::f32, KvDtype::bf16, bound.bf16_kv, w.bf16_kv);
    measure(ActivationMode::int16, KvDtype::bf16, bound.served, w.served);
    if (c.type == "BF16") measure(ActivationMode::bf16, KvDtype::f32, bound.rounded, w.rounded);
    std::filesystem::remove_all(path);
  }
  std::printf("largest |difference| / std(logits) over %zu models\n", record.cases.size());
  std::printf("%-9s %14s %14s %14s %14s %14s\n", "type", "f32 act f32 kv", "int16 act", "bf16 kv", "both", "bf16 act");
  for (const auto& [type, w] : worst)
    std::printf("%-9s %14.2g %14.2g %14.2g %14.2g %14.2g\n", type.c_str(), w.plain, w.int16, w.bf16_kv, w.served, w.rounded);
}

TEST(Logits, MatchTransformersOnEveryArchitectureAndType) {
  expect_logits_of(tiny::read_logit_record(""));
}

// Mistral, Qwen2's mix, Gemma 2 and Gemma 3 with prompts longer than their windows (tools/record/window_logits.py).
TEST(Logits, MatchTransformersInWindows) {
  expect_logits_of(tiny::read_logit_record("window_"));
}

// Mixtures of experts (tools/record/expert_logits.py).
TEST(Logits, MatchTransformersOnMixturesOfExperts) {
  expect_logits_of(tiny::read_logit_record("expert_"), tiny::expert_logit_bounds());
}

// The prompts of gpt-oss are longer than its windows (tools/record/gpt_oss_logits.py).
TEST(Logits, MatchTransformersOnGptOss) {
  expect_logits_of(tiny::read_logit_record("gpt_oss_"), tiny::gpt_oss_logit_bounds());
}

// DeepSeek V2 and V3 (tools/record/deepseek_logits.py).
TEST(Logits, MatchTransformersOnDeepSeek) {
  expect_logits_of(tiny::read_logit_record("deepseek_"), tiny::deepseek_logit_bounds());
}

// Folders quantised by GPTQ, AWQ, compressed-tensors and as fp8, and GGUF's smallest types (tools/record/quantised_logits.py).
TEST(Logits, MatchTransformersOnQuantisedFolders) {
  expect_logits_of(tiny::read_logit_record("quantised_"), tiny::quantised_logit_bounds());
}

// Layers with states (tools/record/state_logits.py).
TEST(Logits, MatchTransformersOnLayersWithStates) {
  expect_logits_of(tiny::read_logit_record("state_"), tiny::state_logit_bounds());
}

// LFM2 with experts and Nemotron-H (tools/record/newer_logits.py).
TEST(Logits, MatchTransformersOnNewerModels) {
  expect_logits_of(tiny::read_logit_record("newer_"), tiny::newer_logit_bounds());
}

}  // namespace
}  // namespace quire
