// NaN in weights and in the KV cache: dependent rows get NaN logits, and all other rows keep the bits that they have without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/kernel/kernel.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

struct Mode {
  const char* name;
  const char* type;
  ActivationMode activations;
  KvDtype kv;
  KernelIsa isa;
};

std::string name_of(const Mode& mode) {
  return mode.name;
}

// Returns the default mode (16-bit activations, bf16 KV) on every instruction set, and float modes.
std::vector<Mode> modes() {
  std::vector<Mode> all;
  all.push_back({"floats", "F32", ActivationMode::f32, KvDtype::f32, KernelIsa::best});
  all.push_back({"served_q8_reference", "Q8_0", ActivationMode::int16, KvDtype::bf16, KernelIsa::reference});
#ifdef __aarch64__
  all.push_back({"served_q8_neon", "Q8_0", ActivationMode::int16, KvDtype::bf16, KernelIsa::neon});
#else
  all.push_back({"served_q8_avx2", "Q8_0", ActivationMode::int16, KvDtype::bf16, KernelIsa::avx2});
  all.push_back({"served_q8_avx512", "Q8_0", ActivationMode::int16, KvDtype::bf16, KernelIsa::avx512});
#endif
  all.push_back({"served_q4_1", "Q4_1", ActivationMode::int16, KvDtype::bf16, KernelIsa::best});
  all.push_back({"served_mixed", "mixed", ActivationMode::int16, KvDtype::bf16, KernelIsa::best});
  all.push_back({"served_bf16", "BF16", ActivationMode::int16, KvDtype::bf16, KernelIsa::best});
  all.push_back({"rounded_bf16", "BF16", ActivationMode::bf16, KvDtype::bf16, KernelIsa::best});
  return all;
}

class NotANumberInModels : public testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    const auto found = find_kernels(GetParam().isa);
    if (!found) GTEST_SKIP() << GetParam().name << " did not run: " << found.error().message;
    tensors_ = tiny::make_tensors(tiny::small_llama(), true, GetParam().type);
  }
  [[nodiscard]] tiny::RigOptions options() const {
    return {.activations = GetParam().activations, .kv = GetParam().kv, .isa = GetParam().isa};
  }
  [[nodiscard]] std::string write(const std::vector<tiny::Tensor>& tensors) const {
    std::string path = folder_.file("model.gguf");
    tiny::write_file(path, tiny::gguf_header(tiny::small_llama()).file(tensors));
    return path;
  }

  std::vector<tiny::Tensor> tensors_;
  tiny::TempFolder folder_;
};

// Returns the tensors with one number of a row set to NaN: a weight, or the scale of a block.
std::vector<tiny::Tensor> with_nan(std::vector<tiny::Tensor> tensors, const std::string& name, std::size_t row) {
  tiny::Tensor& tensor = *std::ranges::find(tensors, name, &tiny::Tensor::name);
  const std::size_t rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
  char* at = tensor.bytes.data() + (rows == 1 ? 0 : row * (tensor.bytes.size() / rows));
  const std::uint32_t nan = tensor.type == GgmlType::f32 ? 0x7FC00000 : tensor.type == GgmlType::bf16 ? 0x7FC0 : 0x7E00;
  std::memcpy(at + (tensor.type == GgmlType::q6_k ? 208 : 0), &nan, tensor.type == GgmlType::f32 ? 4 : 2);
  return tensors;
}

bool all_nan(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isnan(value); });
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::vector<TokenId> tokens_from(TokenId first, std::size_t count) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(first + static_cast<TokenId>(i * 5 % 200));
  return tokens;
}

TEST_P(NotANumberInModels, ANaNWeightOfALayerMakesEveryLogitNaN) {
  const std::vector<TokenId> prompt = tokens_from(20, 6);
  for (const std::string name :
       {"blk.0.attn_norm.weight", "blk.0.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight", "blk.0.attn_output.weight",
        "blk.1.ffn_norm.weight", "blk.0.ffn_gate.weight", "blk.1.ffn_up.weight", "blk.1.ffn_down.weight", "output_norm.weight"}) {
    tiny::Rig rig(write(with_nan(tensors_, name, 3)), options());
    rig.give_blocks(Slot{0}, tiny::blocks_for(6, 16, 1));
    EXPECT_TRUE(all_nan(rig.run(prompt, {{Slot{0}, 0, 6}}))) << name;
  }
}

TEST_P(NotANumberInModels, ANaNWeightOfTheOutputAffectsOnlyItsLogit) {
  const std::vector<TokenId> prompt = tokens_from(20, 6);
  std::vector<std::vector<float>> logits;
  for (const auto& tensors : {tensors_, with_nan(tensors_, "output.weight", 3)}) {
    tiny::Rig rig(write(tensors), options());
    rig.give_blocks(Slot{0}, tiny::blocks_for(6, 16, 1));
    logits.push_back(rig.run(prompt, {{Slot{0}, 0, 6}}));
  }
  for (std::size_t i = 3; i < logits[1].size(); i += 300) {
    EXPECT_TRUE(std::isnan(logits[1][i]));
    logits[1][i] = logits[0][i];
  }
  EXPECT_TRUE(same_bits(logits[0], logits[1]));
}

// Two requests run in one pass; one of them contains the token whose embedding has NaN.
TEST_P(NotANumberInModels, ANaNEmbeddingAffectsRequestsThatContainItsToken) {
  constexpr TokenId kBroken = 7;
  std::vector<TokenId> tokens = tokens_from(20, 20);
  const std::vector<BatchSequence> sequences{{Slot{0}, 0, 10}, {Slot{1}, 0, 10}};
  std::vector<std::vector<float>> logits;
  for (const auto& tensors : {tensors_, with_nan(tensors_, "token_embd.weight", kBroken)}) {
    tokens[4] = kBroken;
    tiny::Rig rig(write(tensors), options());
    for (const std::uint32_t slot : {0U, 1U}) rig.give_blocks(Slot{slot}, tiny::blocks_for(10, 16, 1 + slot));
    logits.push_back(rig.run(tokens, sequences));
  }
  const std::span clean(logits[0]), changed(logits[1]);
  EXPECT_TRUE(same_bits(clean.first(std::size_t{4} * 300), changed.first(std::size_t{4} * 300))) << "positions before the token";
  EXPECT_TRUE(all_nan(changed.subspan(std::size_t{4} * 300, std::size_t{6} * 300)));
  EXPECT_TRUE(same_bits(clean.subspan(std::size_t{10} * 300), changed.subspan(std::size_t{10} * 300))) << "the other request";
}

// One number of a block changes in memory between two passes. Requests 0 and 1 share the block, request 2 does not.
TEST_P(NotANumberInModels, ACorruptedKvBlockAffectsRequestsThatAttendToIt) {
  const std::string path = write(tensors_);
  const std::vector<TokenId> prompt = tokens_from(20, 40);
  const std::vector<TokenId> next{9, 10, 11};
  const auto decode = [&](std::uint32_t layer, bool in_keys, std::uint32_t bits) {
    tiny::Rig rig(path, options());
    rig.give_blocks(Slot{0}, std::vector{BlockId{1}, BlockId{2}, BlockId{3}});
    rig.give_blocks(Slot{1}, std::vector{BlockId{1}, BlockId{2}, BlockId{4}});
    rig.give_blocks(Slot{2}, std::vector{BlockId{5}, BlockId{6}, BlockId{7}});
    rig.run(prompt, {{Slot{0}, 0, 40}});
    rig.run(std::span(prompt).subspan(32), {{Slot{1}, 32, 8}});
    rig.run(prompt, {{Slot{2}, 0, 40}});
    const KvLayerLayout& strides = rig.cache().layout().layers[layer];
    std::byte* block =
        (in_keys ? rig.cache().keys(layer) : rig.cache().values(layer)) + 2 * strides.block_stride * rig.cache().layout().element_bytes();
    if (bits != 0) {
      const std::uint32_t value = GetParam().kv == KvDtype::f32 ? bits : bits >> 16;
      std::memcpy(&block[80], &value, GetParam().kv == KvDtype::f32 ? 4 : 2);
    }
    return rig.run(next, {{Slot{0}, 40, 1}, {Slot{1}, 40, 1}, {Slot{2}, 40, 1}});
  };
  const std::vector<float> clean = decode(0, true, 0);
  for (const std::uint32_t layer : {0U, 1U}) {
    for (const bool in_keys : {true, false}) {
      for (const std::uint32_t bits : {0x7FC00000U, 0x7F800000U, 0xFF800000U}) {  // NaN and the infinities
        const std::vector<float> logits = decode(layer, in_keys, bits);
        EXPECT_TRUE(all_nan(std::span(logits).first(std::size_t{2} * 300))) << layer << " keys " << in_keys << " bits " << bits;
        EXPECT_TRUE(same_bits(std::span(logits).last(300), std::span(clean).last(300))) << layer << " keys " << in_keys;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, NotANumberInModels, testing::ValuesIn(modes()), [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace quire
