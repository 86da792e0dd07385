// Blocks on disk belong to another model as soon as anything differs that their bits depend on.
#include "runtime/model/weights/kv_fingerprint.h"

#include <gtest/gtest.h>

#include <fstream>

#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

KvLayout layout_of(std::uint32_t block_size, KvDtype dtype, std::uint32_t num_blocks = 8) {
  KvLayout layout{.num_blocks = num_blocks, .dtype = dtype, .groups = {}, .layers = {{}}, .page_bytes = {64 * block_size}};
  layout.groups.push_back({.spec = {}, .block_size = block_size, .kernel_block_size = block_size, .layers = {0}});
  return layout;
}

class KvFingerprint : public testing::Test {
 protected:
  [[nodiscard]] Sha256Digest of(const KvLayout& layout = layout_of(16, KvDtype::bf16), ActivationMode activations = ActivationMode::int16,
                                const char* naming = "canonical", WeightQuantisation quantise = WeightQuantisation::none) const {
    const auto file = ModelFile::open(path_);
    EXPECT_TRUE(file) << file.error().to_string();
    return kv_fingerprint(*file, layout, {activations, quantise}, naming).value();
  }
  void write_gguf() {
    path_ = folder_.file("model.gguf");
    tiny::write_file(path_, tiny::gguf_header(tiny::small_llama()).file(tiny::make_tensors(tiny::small_llama(), true, "F32")));
  }
  static void flip(const std::string& path, std::uint64_t from_end) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-static_cast<std::streamoff>(from_end), std::ios::end);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-static_cast<std::streamoff>(from_end), std::ios::end);
    file.put(byte);
  }

  tiny::TempFolder folder_;
  std::string path_;
};

TEST_F(KvFingerprint, DependsOnModelLayoutAndArithmetic) {
  write_gguf();
  const Sha256Digest same = of();
  EXPECT_EQ(of(), same);
  EXPECT_EQ(of(layout_of(16, KvDtype::bf16, 999)), same) << "the number of blocks does not matter";
  EXPECT_NE(of(layout_of(32, KvDtype::bf16)), same);
  EXPECT_NE(of(layout_of(16, KvDtype::f32)), same);
  EXPECT_NE(of(layout_of(16, KvDtype::int8)), same);
  EXPECT_NE(of(layout_of(16, KvDtype::bf16), ActivationMode::f32), same);
  EXPECT_NE(of(layout_of(16, KvDtype::bf16), ActivationMode::int8), same);
  EXPECT_NE(of(layout_of(16, KvDtype::bf16), ActivationMode::int8), of(layout_of(16, KvDtype::bf16), ActivationMode::f32));
  EXPECT_NE(of(layout_of(16, KvDtype::bf16), ActivationMode::int16, "sha256"), same);
  const Sha256Digest eight = of(layout_of(16, KvDtype::bf16), ActivationMode::int16, "canonical", WeightQuantisation::q8_0);
  EXPECT_NE(eight, same);
  EXPECT_NE(eight, of(layout_of(16, KvDtype::bf16), ActivationMode::int16, "canonical", WeightQuantisation::q4_k));
  KvLayout strided = layout_of(16, KvDtype::bf16);
  strided.layers[0].head_stride = 7;
  EXPECT_NE(of(strided), same);
}

TEST_F(KvFingerprint, DependsOnEveryBitOfTheWeights) {
  write_gguf();
  const Sha256Digest same = of();
  for (const std::uint64_t from_end : {1U, 5000U, 100000U}) {
    flip(path_, from_end);
    EXPECT_NE(of(), same) << from_end;
    flip(path_, from_end);
    EXPECT_EQ(of(), same);
  }
}

TEST_F(KvFingerprint, DependsOnTheConfigOfAFolder) {
  boost::json::object config = {
      {"model_type", "llama"},  {"vocab_size", 300},           {"hidden_size", 256},       {"intermediate_size", 256},
      {"num_hidden_layers", 2}, {"num_attention_heads", 4},    {"num_key_value_heads", 2}, {"max_position_embeddings", 128},
      {"rms_norm_eps", 1e-5},   {"tie_word_embeddings", false}};
  path_ = folder_.file("hf");
  tiny::write_hf_folder(path_, config, tiny::make_tensors(tiny::small_llama(), false, "F32"));
  const Sha256Digest same = of();
  EXPECT_EQ(of(), same);
  config["rms_norm_eps"] = 1e-6;
  tiny::write_hf_folder(path_, config, tiny::make_tensors(tiny::small_llama(), false, "F32"));
  EXPECT_NE(of(), same);
}

}  // namespace
}  // namespace quire
