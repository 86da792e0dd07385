// Tests LoRA adapters: logits must match peft (tools/record/adapter_logits.py), and a row's bits must not depend on other rows. Folders
// that are not adapters of the model are refused.
#include "runtime/model/weights/adapter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "runtime/kernel/kernel.h"
#include "runtime/model/config/families.h"
#include "runtime/model/logit_record.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_adapter.h"
#include "runtime/model/tiny_model.h"
#include "runtime/model/weights/model_file.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxRank = 64;

ModelConfig config_at(const std::string& path) {
  const auto file = ModelFile::open(path);
  EXPECT_TRUE(file) << (file ? "" : file.error().to_string());
  return file->config();
}

std::shared_ptr<const Adapter> loaded(const std::string& folder, const ModelConfig& config) {
  auto adapter = load_adapter(folder, config, kMaxRank);
  EXPECT_TRUE(adapter) << (adapter ? "" : adapter.error().to_string());
  return adapter ? *adapter : nullptr;
}

std::vector<tiny::Tensor> recorded_tensors(const boost::json::value& adapter) {
  tiny::AdapterTensors made;
  for (const auto& tensor : adapter.at("tensors").as_array())
    made.put(std::string(tensor.at(0).as_string()), tiny::numbers<std::uint64_t>(tensor.at(1)));
  return made.all;
}

double worst_difference(const tiny::LogitRecord& record, const tiny::LogitCase& c, const tiny::TempFolder& folder, ActivationMode mode,
                        KvDtype kv) {
  const std::string path = tiny::write_model(c, folder);
  tiny::write_adapter(folder.file("adapter"), c.adapter.at("config"), recorded_tensors(c.adapter));
  const auto adapter = loaded(folder.file("adapter"), config_at(path));
  if (adapter == nullptr) return INFINITY;
  tiny::Rig rig(path, {.activations = mode, .kv = kv, .max_tokens = c.max_model_len, .max_lora_rank = kMaxRank});
  const auto tokens = static_cast<std::uint32_t>(record.prompt.size());
  rig.give_blocks(Slot{0}, tiny::blocks_for(tokens, 16, 3, 2));
  const auto logits = rig.run(record.prompt, {{Slot{0}, 0, tokens, adapter.get()}});
  std::filesystem::remove_all(path);
  return tiny::largest_difference(record, c, logits, rig.vocab());
}

TEST(Adapter, LogitsMatchPeft) {
  const tiny::LogitRecord record = tiny::read_logit_record("adapter_");
  ASSERT_GE(record.cases.size(), 22U);
  const tiny::TempFolder folder;
  for (const tiny::LogitCase& c : record.cases) {
    const double plain = worst_difference(record, c, folder, ActivationMode::f32, KvDtype::f32);
    const double served = worst_difference(record, c, folder, ActivationMode::int16, KvDtype::bf16);
    // Routers of Mixtral amplify differences, as they do without adapters. Torch computes the rule of Qwen3-Next by chunks.
    const bool is_routed = c.name.find("mixtral") != std::string::npos, by_chunks = c.name.find("qwen3_next") != std::string::npos;
    EXPECT_LE(plain, is_routed ? 2.2e-4 : by_chunks ? 6e-5 : 3e-5) << c.name;
    EXPECT_LE(served, is_routed ? 0.17 : 0.065) << c.name;
    std::printf("%-24s f32 %.2g, as served %.2g\n", c.name.c_str(), plain, served);
  }
}

// A model with three adapters: two ranks, and one adapter that changes attention alone.
class SeveralAdapters : public testing::Test {
 protected:
  void make(ModelConfig config, std::string_view kind) {
    path_ = folder_.file("model.gguf");
    tiny::write_gguf(path_, config, kind);
    config = config_at(path_);
    const std::uint64_t ranks[] = {8, 17, 1};
    for (std::uint64_t i = 0; i < 3; ++i) {
      tiny::AdapterTensors tensors = tiny::adapter_of(config, ranks[i], std::to_string(i));
      if (i == 0) tensors.add_embedding(config.vocab_size, config.hidden_size, ranks[i]);
      if (i == 1) tensors.add("lm_head", config.vocab_size, config.hidden_size, ranks[i]);
      if (i == 2) std::erase_if(tensors.all, [](const tiny::Tensor& tensor) { return tensor.name.find(".mlp.") != std::string::npos; });
      const std::string name = folder_.file("adapter" + std::to_string(i));
      tiny::write_adapter(name, tiny::adapter_config(ranks[i], 16), tensors.all);
      adapters_.push_back(loaded(name, config));
      ASSERT_NE(adapters_.back(), nullptr);
    }
  }

  [[nodiscard]] tiny::RigOptions options(ActivationMode mode, KernelIsa isa = KernelIsa::best) const {
    return {.activations = mode,
            .kv = KvDtype::bf16,
            .isa = isa,
            .max_rows = 400,
            .num_slots = 16,
            .num_blocks = 200,
            .max_lora_rank = kMaxRank};
  }
  [[nodiscard]] const Adapter* adapter(std::size_t i) const { return i < adapters_.size() ? adapters_[i].get() : nullptr; }

  static std::vector<TokenId> tokens_of(std::uint64_t seed, std::size_t count) {
    Random random(seed);
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random.below(300));
    return tokens;
  }

  std::vector<float> alone(const tiny::RigOptions& options, const std::vector<TokenId>& tokens, const Adapter* adapter) {
    tiny::Rig rig(path_, options);
    rig.give_blocks(Slot{3}, tiny::blocks_for(128, 16, 5));
    return rig.run(tokens, {{Slot{3}, 0, static_cast<std::uint32_t>(tokens.size()), adapter}});
  }

  tiny::TempFolder folder_;
  std::string path_;
  std::vector<std::shared_ptr<const Adapter>> adapters_;
};

// Twelve requests of random lengths run with three adapters and without, split into passes at random. Each row must match its request
// alone.
class MixedAdapters : public SeveralAdapters {
 protected:
  struct History {
    const Adapter* adapter;
    std::vector<TokenId> tokens;
    std::vector<float> expected;
    std::uint32_t done = 0;
  };

  void expect_bits_of_alone(const tiny::RigOptions& options, std::uint64_t seed) {
    Random random(seed);
    std::vector<History> histories;
    for (std::uint64_t i = 0; i < 12; ++i) {
      const Adapter* own = adapter(random.below(4));
      std::vector<TokenId> tokens = tokens_of(100 + i, 1 + random.below(100));
      std::vector<float> expected = alone(options, tokens, own);
      histories.push_back({own, std::move(tokens), std::move(expected)});
    }
    tiny::Rig rig(path_, options);
    for (std::uint32_t slot = 0; slot < histories.size(); ++slot) rig.give_blocks(Slot{slot}, tiny::blocks_for(112, 16, 1 + slot, 13));
    while (std::ranges::any_of(histories, [](const History& h) { return h.done < h.tokens.size(); })) pass(rig, histories, random);
  }

 private:
  static void pass(tiny::Rig& rig, std::vector<History>& histories, Random& random) {
    std::vector<TokenId> tokens;
    std::vector<BatchSequence> sequences;
    std::vector<std::pair<History*, std::uint32_t>> rows;  // the request and the row's position
    for (std::uint32_t slot = 0; slot < histories.size(); ++slot) {
      History& h = histories[slot];
      const auto left = static_cast<std::uint32_t>(h.tokens.size()) - h.done;
      const auto count = std::min(left, static_cast<std::uint32_t>(random.below(3) == 0 ? random.below(60) : random.below(2)));
      if (count == 0) continue;
      sequences.push_back({Slot{slot}, h.done, count, h.adapter});
      for (std::uint32_t i = 0; i < count; ++i, ++h.done) {
        tokens.push_back(h.tokens[h.done]);
        rows.emplace_back(&h, h.done);
      }
    }
    if (tokens.empty() || tokens.size() > 400) return;
    const std::vector<float> logits = rig.run(tokens, sequences);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const float* expected = rows[i].first->expected.data() + rows[i].second * rig.vocab();
      ASSERT_EQ(std::memcmp(expected, logits.data() + i * rig.vocab(), rig.vocab() * sizeof(float)), 0)
          << "position " << rows[i].second << " of a request " << (rows[i].first->adapter == nullptr ? "without" : "with") << " an adapter";
    }
  }
};

TEST_F(MixedAdapters, RowBitsEqualTheRequestAlone) {
  make(tiny::small_llama(), "mixed");
  for (const ActivationMode mode : {ActivationMode::int16, ActivationMode::int8, ActivationMode::f32})
    expect_bits_of_alone(options(mode), 7 + static_cast<std::uint64_t>(mode));
}

TEST_F(MixedAdapters, RowBitsEqualTheRequestAloneInGemma2) {
  ModelConfig config = tiny::small_llama();
  config.architecture = "gemma2";
  config.sliding_windows = {20, 0};
  config.post_norms = true;
  config.attention_soft_cap = 4.0F;
  config.logit_soft_cap = 20.0F;
  make(config, "Q8_0");
  expect_bits_of_alone(options(ActivationMode::int16), 31);
}

TEST_F(MixedAdapters, SupportAttentionAndExpertsOfAMoE) {
  make(tiny::small_mixture("qwen2_moe"), "Q8_0");
  expect_bits_of_alone(options(ActivationMode::int16), 32);
}

// Adapters apply to the inputs and outputs of states, wherever requests are split.
TEST_F(MixedAdapters, SupportLayersWithStates) {
  for (const ModelConfig& config : {tiny::small_lfm2(), tiny::small_mamba("granitemoehybrid")}) {
    SCOPED_TRACE(config.architecture);
    adapters_.clear();
    make(config, "Q8_0");
    expect_bits_of_alone(options(ActivationMode::int16), 33);
  }
}

TEST_F(SeveralAdapters, EveryInstructionSetGivesTheSameBits) {
  make(tiny::small_llama(), "Q4_1");
  const std::vector<TokenId> tokens = tokens_of(1, 70);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<float> plain = alone(options(ActivationMode::int16, KernelIsa::reference), tokens, adapter(i));
    for (const KernelIsa isa : kFastIsas) {
      if (!find_kernels(isa)) continue;
      const std::vector<float> fast = alone(options(ActivationMode::int16, isa), tokens, adapter(i));
      EXPECT_EQ(std::memcmp(plain.data(), fast.data(), plain.size() * sizeof(float)), 0) << "adapter " << i;
    }
  }
}

TEST_F(SeveralAdapters, EachAdapterChangesTheAnswerAndNoAdapterEqualsTheBaseModel) {
  make(tiny::small_llama(), "F32");
  const std::vector<TokenId> tokens = tokens_of(2, 30);
  std::vector<std::vector<float>> all{alone(options(ActivationMode::f32), tokens, nullptr)};
  for (std::size_t i = 0; i < 3; ++i) all.push_back(alone(options(ActivationMode::f32), tokens, adapter(i)));
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " and " << j;
  tiny::RigOptions without = options(ActivationMode::f32);
  without.max_lora_rank = 0;
  EXPECT_EQ(alone(without, tokens, nullptr), all[0]);
}

class AdapterFolder : public testing::Test {
 protected:
  AdapterFolder() : config_(tiny::small_llama()), tensors_(tiny::adapter_of(config_, 8)), json_(tiny::adapter_config(8, 16)) {}

  Error error(std::uint32_t max_rank = kMaxRank) {
    tiny::write_adapter(folder_.file("a"), json_, tensors_.all);
    auto adapter = load_adapter(folder_.file("a"), config_, max_rank);
    return adapter ? Error{ErrorCode::invalid_argument, "none", "it was loaded", ""} : adapter.error();
  }
  tiny::Tensor& tensor(const std::string& end) {
    return *std::ranges::find_if(tensors_.all, [&](const tiny::Tensor& one) { return one.name.ends_with(end); });
  }

  tiny::TempFolder folder_;
  ModelConfig config_;
  tiny::AdapterTensors tensors_;
  boost::json::object json_;
};

TEST_F(AdapterFolder, RefusesUnsupportedFieldsAndReportsThem) {
  const boost::json::object plain = json_;
  const std::pair<const char*, boost::json::value> cases[] = {
      {"peft_type", "IA3"},
      {"bias", "all"},
      {"use_dora", true},
      {"modules_to_save", boost::json::array{"lm_head"}},
      {"fan_in_fan_out", true},
      {"lora_bias", true},
      {"use_qalora", true},
      {"target_parameters", boost::json::array{"mlp.experts.gate_up_proj"}},
      {"rank_pattern", {{"^model\\.layers\\.(0|1)", 4}}},
      {"layer_replication", boost::json::array{0, 1}},
  };
  for (const auto& [field, value] : cases) {
    json_ = plain;
    json_[field] = value;
    const Error refused = error();
    EXPECT_EQ(refused.code, ErrorCode::unsupported) << field;
    EXPECT_NE(refused.field.find(field), std::string::npos) << refused.to_string();
  }
}

TEST_F(AdapterFolder, IgnoresFeaturesThatAreOff) {
  for (const char* field : {"use_dora", "lora_bias", "fan_in_fan_out"}) json_[field] = false;
  for (const char* field : {"modules_to_save", "layer_replication", "target_parameters"}) json_[field] = nullptr;
  json_["rank_pattern"] = boost::json::object{};
  EXPECT_EQ(error().field, "none");
}

TEST_F(AdapterFolder, ReportsInvalidConfigsAsCorrupt) {
  const boost::json::object plain = json_;
  const std::pair<const char*, boost::json::value> cases[] = {{"r", 0},       {"r", -3},        {"r", "eight"},     {"r", 1e30},
                                                              {"r", nullptr}, {"peft_type", 7}, {"lora_alpha", "x"}};
  for (const auto& [field, value] : cases) {
    json_ = plain;
    json_[field] = value;
    EXPECT_EQ(error().code, ErrorCode::corrupt) << field << " " << value;
  }
}

TEST_F(AdapterFolder, RefusesARankAboveTheLimitAndReportsTheOption) {
  const Error refused = error(4);
  EXPECT_EQ(refused.code, ErrorCode::unsupported);
  EXPECT_NE(refused.to_string().find("max_lora_rank"), std::string::npos) << refused.to_string();
  EXPECT_EQ(error(8).field, "none");
}

TEST_F(AdapterFolder, RefusesAnAdapterOfAnotherModel) {
  config_.hidden_size = 512;
  EXPECT_EQ(error().code, ErrorCode::invalid_argument);
  config_ = tiny::small_llama();
  config_.num_layers = 1;
  EXPECT_EQ(error().code, ErrorCode::invalid_argument);
  config_ = tiny::small_mixture("olmoe");  // a model without dense feed-forward layers
  EXPECT_EQ(error().code, ErrorCode::unsupported);
}

TEST_F(AdapterFolder, RefusesAdaptersOfConvolutionsAndScaledWeights) {
  config_ = tiny::small_lfm2();
  tensors_ = tiny::adapter_of(config_, 8);
  EXPECT_EQ(error().field, "none");
  tensors_.add("model.layers.0.conv.conv", config_.hidden_size, 3, 8);
  Error refused = error();
  EXPECT_EQ(refused.code, ErrorCode::unsupported);
  EXPECT_NE(refused.field.find("layers.0.conv.conv.lora_A"), std::string::npos) << refused.to_string();
  config_ = tiny::small_mamba("falcon_h1");
  tensors_ = tiny::adapter_of(config_, 8);
  EXPECT_EQ(error().field, "none");
  config_.adapter_problem = find_gguf_family("falcon-h1")->gguf.adapter_problem;
  refused = error();
  EXPECT_EQ(refused.code, ErrorCode::unsupported);
  EXPECT_EQ(refused.field, "architecture");
}

TEST_F(AdapterFolder, RefusesAnExpertThatDoesNotExist) {
  config_ = tiny::small_mixture("olmoe");
  for (const char* module : {"experts.7.up_proj", "experts.x.up_proj", "experts.99999999999.up_proj", "experts.1.gate", "gate"}) {
    tensors_.all.clear();
    tensors_.add(std::string("model.layers.0.mlp.") + module, 96, 256, 8);
    EXPECT_EQ(error().code, ErrorCode::unsupported) << module;
  }
}

TEST_F(AdapterFolder, RefusesAConfigRankThatDiffersFromTheTensors) {
  json_["r"] = 7;
  const Error refused = error();
  EXPECT_EQ(refused.code, ErrorCode::invalid_argument);
  EXPECT_NE(refused.message.find("[8, 256]"), std::string::npos) << refused.to_string();
}

TEST_F(AdapterFolder, ReportsAnUnpairedMatrixAsCorrupt) {
  for (const char* end : {"layers.1.mlp.down_proj.lora_A.weight", "layers.0.self_attn.q_proj.lora_B.weight"}) {
    const std::vector<tiny::Tensor> whole = tensors_.all;
    std::erase_if(tensors_.all, [&](const tiny::Tensor& one) { return one.name.ends_with(end); });
    EXPECT_EQ(error().code, ErrorCode::corrupt) << end;
    tensors_.all = whole;
  }
}

TEST_F(AdapterFolder, ReportsTheTensorOfANonFiniteValue) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38F}) {
    tiny::Tensor& changed = tensor("layers.1.self_attn.v_proj.lora_B.weight");
    const std::string sound = changed.bytes;
    std::memcpy(changed.bytes.data() + 44, &bad, sizeof bad);
    const Error refused = error();
    EXPECT_EQ(refused.code, ErrorCode::corrupt) << bad;
    EXPECT_NE(refused.field.find("layers.1.self_attn.v_proj.lora_B"), std::string::npos);
    changed.bytes = sound;
  }
}

TEST_F(AdapterFolder, RefusesUnknownTensors) {
  for (const char* name : {"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", "base_model.model.lm_head.weight",
                           "base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias"}) {
    tensors_.put(name, {4, 4});
    EXPECT_EQ(error().code, ErrorCode::unsupported) << name;
    tensors_.all.pop_back();
  }
  tensors_.add("model.layers.0.self_attn.rotary_emb", 8, 8, 8);
  EXPECT_EQ(error().code, ErrorCode::unsupported);
}

// PEFT writes these copies next to the LoRA matrices (save_embedding_layers).
TEST_F(AdapterFolder, IgnoresCopiesOfTheModelsEmbeddings) {
  ASSERT_EQ(error().field, "none");
  const std::uint64_t bytes = loaded(folder_.file("a"), config_)->bytes();
  for (const char* name : {"base_model.model.lm_head.base_layer.weight", "base_model.model.model.embed_tokens.base_layer.weight"})
    tensors_.put(name, {config_.vocab_size, config_.hidden_size});
  ASSERT_EQ(error().field, "none");
  EXPECT_EQ(loaded(folder_.file("a"), config_)->bytes(), bytes);
  tensors_.put("base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight", {4, 4});
  EXPECT_EQ(error().code, ErrorCode::unsupported) << "only embeddings may have a copy";
}

// These are the decoder prefixes of SmolVLM, of Qwen2.5-VL and newer LLaVA, and of older LLaVA.
TEST_F(AdapterFolder, AcceptsTheDecoderPrefixesOfImageModels) {
  ASSERT_EQ(error().field, "none");
  const std::uint64_t bytes = loaded(folder_.file("a"), config_)->bytes();
  const std::string plain = std::string(tiny::kAdapterPrefix) + "model.";
  const std::vector<tiny::Tensor> whole = tensors_.all;
  for (const char* decoder : {"model.text_model.", "model.language_model.", "language_model.model."}) {
    tensors_.all = whole;
    for (tiny::Tensor& one : tensors_.all)
      if (one.name.starts_with(plain)) one.name = tiny::kAdapterPrefix + (decoder + one.name.substr(plain.size()));
    ASSERT_EQ(error().field, "none") << decoder;
    EXPECT_EQ(loaded(folder_.file("a"), config_)->bytes(), bytes) << decoder;
  }
}

TEST_F(AdapterFolder, ReportsTruncatedAndMissingFiles) {
  EXPECT_EQ(error().field, "none");
  const std::string weights = folder_.file("a/adapter_model.safetensors");
  const auto size = std::filesystem::file_size(weights);
  for (const std::uintmax_t left : {size - 1, size / 2, std::uintmax_t{9}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(weights, left);
    EXPECT_FALSE(load_adapter(folder_.file("a"), config_, kMaxRank)) << left;
  }
  std::filesystem::remove(weights);
  EXPECT_EQ(load_adapter(folder_.file("a"), config_, kMaxRank).error().code, ErrorCode::not_found);
  EXPECT_EQ(load_adapter(folder_.file("nowhere"), config_, kMaxRank).error().code, ErrorCode::not_found);
  tensors_.all.clear();
  EXPECT_EQ(error().code, ErrorCode::corrupt);
}

// KV blocks of an adapter are identified by this digest.
TEST_F(AdapterFolder, TheDigestDependsOnTheContent) {
  EXPECT_EQ(error().field, "none");
  const auto first = loaded(folder_.file("a"), config_);
  std::filesystem::copy(folder_.file("a"), folder_.file("b"), std::filesystem::copy_options::recursive);
  EXPECT_EQ(loaded(folder_.file("b"), config_)->digest, first->digest);
  EXPECT_EQ(first->digest.size(), 64U);
  tensor("layers.1.mlp.up_proj.lora_A.weight").bytes[5] ^= 1;
  EXPECT_EQ(error().field, "none");
  EXPECT_NE(loaded(folder_.file("a"), config_)->digest, first->digest);
  tensor("layers.1.mlp.up_proj.lora_A.weight").bytes[5] ^= 1;
  json_["lora_alpha"] = 17;
  EXPECT_EQ(error().field, "none");
  EXPECT_NE(loaded(folder_.file("a"), config_)->digest, first->digest);
}

}  // namespace
}  // namespace quire
