// Models that contradict themselves or need unsupported features must give an error that names the key or the tensor, and never a crash.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "format/json.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

using Tensors = std::vector<tiny::Tensor>;

tiny::Tensor& tensor_named(Tensors& tensors, const std::string& name) {
  return *std::ranges::find(tensors, name, &tiny::Tensor::name);
}

class Malformed : public testing::Test {
 protected:
  [[nodiscard]] Error load(const std::string& path) {
    auto model = load_model(path, {.pool = &pool_});
    EXPECT_FALSE(model) << "loaded a broken model";
    return model ? Error{} : model.error();
  }
  [[nodiscard]] Error load_gguf(const tiny::GgufHeader& header, const Tensors& tensors) {
    const std::string path = folder_.file("model.gguf");
    tiny::write_file(path, header.file(tensors));
    return load(path);
  }
  // Loads a valid model of this kind after `change` has corrupted it.
  [[nodiscard]] Error load_changed(const std::function<void(Tensors&)>& change, const std::string& kind = "F32") {
    auto tensors = tiny::make_tensors(tiny::small_llama(), true, kind);
    change(tensors);
    return load_gguf(tiny::gguf_header(tiny::small_llama()), tensors);
  }
  [[nodiscard]] Error load_config(ModelConfig config) {
    return load_gguf(tiny::gguf_header(config), tiny::make_tensors(tiny::small_llama(), true, "F32"));
  }
  static boost::json::object sound_config() {
    return {{"model_type", "llama"},  {"vocab_size", 300},           {"hidden_size", 256},       {"intermediate_size", 256},
            {"num_hidden_layers", 2}, {"num_attention_heads", 4},    {"num_key_value_heads", 2}, {"max_position_embeddings", 128},
            {"rms_norm_eps", 1e-5},   {"tie_word_embeddings", false}};
  }
  static void write_sound_folder(const std::string& path, const std::string& key = "model_type",
                                 const boost::json::value& value = "llama") {
    boost::json::object json = sound_config();
    json[key] = value;
    tiny::write_hf_folder(path, json, tiny::make_tensors(tiny::small_llama(), false, "F32"));
  }
  // Loads a valid folder after one member of its config.json was set.
  [[nodiscard]] Error load_hf(const std::string& key, const boost::json::value& value) {
    const std::string path = folder_.file("hf");
    write_sound_folder(path, key, value);
    return load(path);
  }

  tiny::TempFolder folder_;
  ThreadPool pool_{2};
};

TEST_F(Malformed, ReportsTheMissingTensor) {
  const Error error = load_changed([](Tensors& t) { std::erase_if(t, [](const auto& x) { return x.name == "blk.1.ffn_up.weight"; }); });
  EXPECT_EQ(error.code, ErrorCode::corrupt);
  EXPECT_EQ(error.field, "blk.1.ffn_up.weight");
  EXPECT_FALSE(error.remedy.empty());
}

TEST_F(Malformed, ReportsTheTensorWithTheWrongShape) {
  const Error error = load_changed(
      [](Tensors& t) { tensor_named(t, "blk.0.attn_k.weight") = tiny::make_tensor("blk.0.attn_k.weight", GgmlType::f32, {64, 256}); });
  EXPECT_EQ(error.code, ErrorCode::corrupt);
  EXPECT_EQ(error.field, "blk.0.attn_k.weight");
  EXPECT_NE(error.message.find("[64, 256]"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("[128, 256]"), std::string::npos) << error.message;
}

TEST_F(Malformed, RefusesANormThatIsAMatrix) {
  const Error error = load_changed([](Tensors& t) { tensor_named(t, "output_norm.weight").shape = {1, 256}; });
  EXPECT_EQ(error.field, "output_norm.weight");
}

TEST_F(Malformed, RefusesAnUnusedTensor) {
  const Error error = load_changed([](Tensors& t) { t.push_back(tiny::make_tensor("blk.0.attn_sinks.weight", GgmlType::f32, {4})); });
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_NE(error.field.find("blk.0.attn_sinks.weight"), std::string::npos);
}

TEST_F(Malformed, ReportsATypeWithoutAnUnpacker) {
  const Error error = load_changed([](Tensors& t) {
    tiny::Tensor& tensor = tensor_named(t, "blk.0.attn_q.weight");
    tensor.type = GgmlType::q8_1;
    tensor.bytes.assign(256UL * 8 * 36, '\0');
  });
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.field, "blk.0.attn_q.weight");
  EXPECT_NE(error.message.find("Q8_1"), std::string::npos) << error.message;
  EXPECT_TRUE(error.remedy.ends_with(supported_weight_types())) << error.remedy;
}

TEST_F(Malformed, RefusesBiasesThatOnlySomeLayersHave) {
  const Error error = load_changed([](Tensors& t) { t.push_back(tiny::make_tensor("blk.0.attn_q.bias", GgmlType::f32, {256})); });
  EXPECT_EQ(error.code, ErrorCode::corrupt);
  EXPECT_EQ(error.field, "blk.0.attn_k.bias");
}

TEST_F(Malformed, RefusesStatesThatContradictTheirTensors) {
  const auto changed = [&](const ModelConfig& config, const std::function<void(Tensors&)>& change) {
    auto tensors = tiny::make_tensors(config, true, "F32");
    change(tensors);
    return load_gguf(tiny::gguf_header(config), tensors);
  };
  const auto replace = [](const char* name, std::vector<std::uint64_t> shape) {
    return [=](Tensors& t) { tensor_named(t, name) = tiny::make_tensor(name, GgmlType::f32, shape); };
  };
  const ModelConfig lfm2 = tiny::small_lfm2(), mamba = tiny::small_mamba("granitemoehybrid");
  EXPECT_EQ(changed(lfm2, replace("blk.0.shortconv.conv.weight", {256, 4})).field, "blk.0.shortconv.conv.weight");
  EXPECT_EQ(changed(lfm2, replace("blk.2.shortconv.in_proj.weight", {512, 256})).field, "blk.2.shortconv.in_proj.weight");
  EXPECT_EQ(changed(mamba, replace("blk.0.ssm_a", {5, 1})).field, "blk.0.ssm_a");
  EXPECT_EQ(changed(mamba, replace("blk.0.ssm_norm.weight", {2, 63})).field, "blk.0.ssm_norm.weight");
  EXPECT_EQ(changed(mamba, replace("blk.3.ssm_conv1d.weight", {224, 3})).field, "blk.3.ssm_conv1d.weight");
  const auto drop = [](const char* name) { return [=](Tensors& t) { std::erase_if(t, [=](const auto& x) { return x.name == name; }); }; };
  EXPECT_EQ(changed(mamba, drop("blk.2.ssm_dt.bias")).field, "blk.2.ssm_dt.bias");
  // The layer has attention by the header, but a state by its tensors.
  ModelConfig other = lfm2;
  other.layer_memories[0] = LayerMemory::attention;
  EXPECT_EQ(load_gguf(tiny::gguf_header(other), tiny::make_tensors(lfm2, true, "F32")).field, "blk.0.attn_q.weight");
  tiny::GgufHeader header = tiny::gguf_header(mamba);
  ModelConfig heads = mamba;
  heads.state.heads = 3;
  EXPECT_EQ(load_gguf(tiny::gguf_header(heads), tiny::make_tensors(mamba, true, "F32")).field, "mamba_n_groups");
}

TEST_F(Malformed, RefusesAnUnknownArchitecture) {
  tiny::GgufHeader header;
  header.add("general.architecture", "mamba");
  const Error error = load_gguf(header, {});
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.field, "general.architecture");
}

TEST_F(Malformed, RefusesAMissingKey) {
  tiny::GgufHeader header;
  header.add("general.architecture", "llama");
  const Error error = load_gguf(header, {});
  EXPECT_EQ(error.code, ErrorCode::corrupt);
  EXPECT_EQ(error.field, "llama.block_count");
}

TEST_F(Malformed, RefusesInconsistentDimensions) {
  const auto changed = [](auto change) {
    ModelConfig config = tiny::small_llama();
    change(config);
    return config;
  };
  EXPECT_EQ(load_config(changed([](ModelConfig& c) { c.num_kv_heads = 3; })).field, "num_kv_heads");
  EXPECT_EQ(load_config(changed([](ModelConfig& c) { c.num_kv_heads = 0; })).field, "num_kv_heads");
  EXPECT_EQ(load_config(changed([](ModelConfig& c) { c.num_layers = 0; })).field, "num_layers");
  EXPECT_EQ(load_config(changed([](ModelConfig& c) { c.num_layers = 3; })).field, "blk.2.attn_norm.weight");
  EXPECT_EQ(load_config(changed([](ModelConfig& c) { c.num_layers = 4'000'000'000; })).field, "num_layers");
  EXPECT_EQ(load_config(changed([](ModelConfig& c) { c.head_dim = 8; })).field, "head_dim");
  EXPECT_EQ(load_config(changed([](ModelConfig& c) { c.head_dim = 592; })).code, ErrorCode::unsupported);
  EXPECT_EQ(load_config(changed([](ModelConfig& c) { c.hidden_size = 512; })).field, "token_embd.weight");
  EXPECT_EQ(load_config(changed([](ModelConfig& c) { c.rope_theta = -1.0; })).field, "rope_theta");
  EXPECT_EQ(load_config(changed([](ModelConfig& c) { c.norm_epsilon = 0.0F; })).field, "norm_epsilon");
}

TEST_F(Malformed, RefusesUnsupportedConfigValues) {
  const auto code_and_field = [&](const std::string& key, const boost::json::value& value) {
    const Error error = load_hf(key, value);
    return std::pair(error.code, error.field);
  };
  EXPECT_EQ(code_and_field("model_type", "gpt2"), std::pair(ErrorCode::unsupported, std::string("config.json: model_type")));
  EXPECT_EQ(code_and_field("hidden_act", "gelu"), std::pair(ErrorCode::unsupported, std::string("config.json: hidden_act")));
  EXPECT_EQ(code_and_field("rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4.0}}).second, "config.json: rope_scaling.rope_type");
  EXPECT_EQ(code_and_field("rope_scaling", {{"rope_type", "llama3"}, {"factor", 4.0}}).second, "config.json: rope_scaling.low_freq_factor");
  EXPECT_EQ(code_and_field("quantization_config", {{"bits", 4}}).second, "config.json: quantization_config.quant_method");
  EXPECT_EQ(code_and_field("partial_rotary_factor", 0.5).first, ErrorCode::unsupported);
  EXPECT_EQ(code_and_field("hidden_size", "wide").second, "config.json: hidden_size");
  EXPECT_EQ(code_and_field("num_hidden_layers", -1).second, "config.json: num_hidden_layers");
  EXPECT_EQ(code_and_field("attention_bias", true).second, "model.layers.0.self_attn.q_proj.bias");
}

TEST_F(Malformed, RefusesListsThatContradictTheLayers) {
  const auto load_smollm3 = [&](const std::string& key, const boost::json::value& value) {
    boost::json::object json = sound_config();
    json["model_type"] = "smollm3";
    json[key] = value;
    const std::string path = folder_.file("layers");
    tiny::write_hf_folder(path, json, tiny::make_tensors(tiny::small_llama(), false, "F32"));
    return load(path);
  };
  const Error still = load_smollm3("no_rope_layers", {1, 1, 0});
  EXPECT_EQ(still.code, ErrorCode::corrupt);
  EXPECT_EQ(still.field, "config.json: no_rope_layers");
  EXPECT_EQ(still.message, "has 3 entries, but the model has 2 layers");
  EXPECT_EQ(load_smollm3("no_rope_layers", {1, "no"}).field, "config.json: no_rope_layers[1]");
  EXPECT_EQ(load_smollm3("no_rope_layers", 4).code, ErrorCode::corrupt);
  EXPECT_EQ(load_smollm3("layer_types", {"full_attention"}).field, "config.json: layer_types");
  const Error mamba = load_smollm3("layer_types", {"full_attention", "mamba"});
  EXPECT_EQ(mamba.code, ErrorCode::unsupported);
  EXPECT_EQ(mamba.field, "config.json: layer_types[1]");
}

TEST_F(Malformed, RefusesInvalidFusedMatricesAndFactors) {
  ModelConfig config = tiny::small_llama();
  config.architecture = "phi3";
  config.fused_qkv = config.fused_gate_up = true;
  config.rope_scaling = RopeScaling::longrope;
  config.rope_original_context = 32;
  config.rope_short_factors.assign(32, 1.0F);
  config.rope_long_factors.assign(32, 2.0F);
  const auto load_phi3 = [&](const ModelConfig& tensors, const std::function<void(Tensors&)>& change) {
    Tensors made = tiny::make_tensors(tensors, true, "F32");
    change(made);
    return load_gguf(tiny::gguf_header(config), made);
  };
  const Error fused = load_phi3(config, [](Tensors& t) {
    tensor_named(t, "blk.1.attn_qkv.weight") = tiny::make_tensor("blk.1.attn_qkv.weight", GgmlType::f32, {256, 256});
  });
  EXPECT_EQ(fused.field, "blk.1.attn_qkv.weight");
  EXPECT_NE(fused.message.find("[512, 256]"), std::string::npos) << fused.message;
  EXPECT_EQ(load_phi3(config, [](Tensors& t) { std::erase_if(t, [](const auto& x) { return x.name == "blk.1.ffn_up.weight"; }); }).field,
            "blk.1.ffn_up.weight");
  EXPECT_EQ(
      load_phi3(config, [](Tensors& t) { std::erase_if(t, [](const auto& x) { return x.name == "rope_factors_short.weight"; }); }).field,
      "rope_factors_short.weight");
  ModelConfig changed = config;
  changed.rope_long_factors.pop_back();
  EXPECT_EQ(load_phi3(changed, [](Tensors&) {}).field, "rope_factors_long.weight");
  changed = config;
  changed.rope_long_factors[3] = 0.0F;
  EXPECT_EQ(load_phi3(changed, [](Tensors&) {}).field, "rope_factors_long.weight");
  changed = config;
  changed.fused_qkv = false;
  changed.num_layers = 1;  // layer 0 is separate, layer 1 is fused
  EXPECT_EQ(load_phi3(changed,
                      [&](Tensors& t) {
                        Tensors fused_ones = tiny::make_tensors(config, true, "F32");
                        std::erase_if(fused_ones, [](const auto& x) { return !x.name.starts_with("blk.1."); });
                        t.insert(t.end(), fused_ones.begin(), fused_ones.end());
                      })
                .field,
            "blk.1.attn_q.weight");
}

TEST_F(Malformed, RefusesAnIncompleteGptOss) {
  const ModelConfig config = tiny::small_gpt_oss();
  const auto load_with = [&](const std::function<void(Tensors&)>& change) {
    Tensors made = tiny::make_tensors(config, true, "F32");
    change(made);
    return load_gguf(tiny::gguf_header(config), made);
  };
  for (const char* name :
       {"blk.1.attn_sinks.weight", "blk.0.ffn_gate_inp.bias", "blk.1.ffn_down_exps.bias", "blk.0.post_attention_norm.weight"})
    EXPECT_EQ(load_with([&](Tensors& t) { std::erase_if(t, [&](const auto& x) { return x.name == name; }); }).field, name);
  for (const float bad : {NAN, INFINITY}) {
    const Error sink = load_with([&](Tensors& t) { std::memcpy(tensor_named(t, "blk.1.attn_sinks.weight").bytes.data(), &bad, 4); });
    EXPECT_EQ(sink.field, "blk.1.attn_sinks.weight");
    EXPECT_EQ(sink.code, ErrorCode::corrupt);
  }
  const Error bias = load_with(
      [](Tensors& t) { tensor_named(t, "blk.0.ffn_up_exps.bias") = tiny::make_tensor("blk.0.ffn_up_exps.bias", GgmlType::f32, {6, 96}); });
  EXPECT_EQ(bias.field, "blk.0.ffn_up_exps.bias");
  EXPECT_NE(bias.message.find("[7, 96]"), std::string::npos) << bias.message;
}

TEST_F(Malformed, RefusesInvalidLatentsAndGroups) {
  const ModelConfig config = tiny::small_deepseek("deepseek_v3");
  const auto load_with = [&](const ModelConfig& said, const std::function<void(Tensors&)>& change) {
    Tensors made = tiny::make_tensors(config, true, "F32");
    change(made);
    return load_gguf(tiny::gguf_header(said), made);
  };
  const auto nothing = [](Tensors&) {};
  for (const char* name : {"blk.0.attn_kv_a_mqa.weight", "blk.2.attn_q_a_norm.weight", "blk.1.attn_v_b.weight", "blk.1.exp_probs_b.bias"})
    EXPECT_EQ(load_with(config, [&](Tensors& t) { std::erase_if(t, [&](const auto& x) { return x.name == name; }); }).field, name);
  ModelConfig changed = config;
  changed.latent.key_dim = 48;
  EXPECT_EQ(load_with(changed, nothing).field, "blk.0.attn_q_b.weight");
  changed = config;
  changed.num_expert_groups = 3;
  EXPECT_EQ(load_with(changed, nothing).field, "n_group");
  changed.num_expert_groups = 4;
  changed.groups_per_token = 1;
  EXPECT_EQ(load_with(changed, nothing).field, "topk_group") << "a group has two experts, but a token uses three";
  changed = config;
  changed.latent.kv_rank = 8192;
  changed.set_latent_heads();
  EXPECT_EQ(load_with(changed, nothing).field, "head_dim");
}

// The architecture requires these tensors. Only optional tensors may be missing.
TEST_F(Malformed, RefusesAnOlmo2WithoutItsNorms) {
  ModelConfig config = tiny::small_llama();
  config.architecture = "olmo2";
  config.qk_norm = QkNorm::whole;
  config.pre_norms = false;
  config.post_norms = true;
  for (const char* name : {"blk.0.attn_q_norm.weight", "blk.1.attn_k_norm.weight", "blk.0.post_attention_norm.weight"}) {
    auto tensors = tiny::make_tensors(config, true, "F32");
    std::erase_if(tensors, [&](const auto& x) { return x.name == name; });
    EXPECT_EQ(load_gguf(tiny::gguf_header(config), tensors).field, name);
  }
}

TEST_F(Malformed, RefusesInvalidScales) {
  const auto load_granite = [&](auto change) {
    ModelConfig config = tiny::small_llama();
    config.architecture = "granite";
    change(config);
    return load_config(config).field;
  };
  EXPECT_EQ(load_granite([](ModelConfig& c) { c.embedding_scale = 0.0F; }), "embedding_scale");
  EXPECT_EQ(load_granite([](ModelConfig& c) { c.residual_scale = NAN; }), "residual_scale");
  EXPECT_EQ(load_granite([](ModelConfig& c) { c.logit_divisor = 0.0F; }), "logit_scale");
  EXPECT_EQ(load_granite([](ModelConfig& c) { c.attention_scale = -1.0F; }), "attention_scale");
}

TEST_F(Malformed, ReportsAMissingModel) {
  EXPECT_EQ(load(folder_.file("nothing.gguf")).code, ErrorCode::not_found);
  EXPECT_FALSE(inspect(folder_.file("nothing.gguf")));
  std::filesystem::create_directories(folder_.file("empty"));
  EXPECT_EQ(load(folder_.file("empty")).code, ErrorCode::not_found);
}

// Whatever header byte changes and wherever the file ends, the result is an error or a model that runs, never a crash.
TEST_F(Malformed, SurvivesChangedBytesAndTruncatedFiles) {
  ModelConfig config = tiny::small_llama();
  config.num_layers = 1;
  config.tied_embeddings = true;
  const std::string sound = tiny::gguf_header(config).file(tiny::make_tensors(config, true, "Q4_0"));
  const std::string path = folder_.file("model.gguf");
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = sound;
    if (random.chance(0.3))
      bytes.resize(random.below(bytes.size()));
    else
      for (int i = 0; i < 3; ++i) bytes[random.below(1500)] = static_cast<char>(random.next());
    tiny::write_file(path, bytes);
    const auto info = inspect(path);
    EXPECT_TRUE(info || !info.error().message.empty());
    const auto model = load_model(path, {.pool = &pool_});
    EXPECT_TRUE(model || !model.error().message.empty());
  }
}

// The progress callback changes these files during the load.
std::string file_to_cut;
std::string file_to_touch;

void change_files(double progress) {
  if (progress >= 1.0) return;
  if (!file_to_cut.empty()) std::filesystem::resize_file(file_to_cut, 0);
  if (!file_to_touch.empty()) std::filesystem::last_write_time(file_to_touch, std::filesystem::file_time_type::clock::now());
}

// A file that another process truncates or rewrites during the load is an error and does not abort the program.
TEST_F(Malformed, ReportsAFileThatChangesWhileItIsLoaded) {
  ThreadPool one(1);
  for (const bool gguf : {true, false}) {
    for (const bool cut : {true, false}) {
      const std::string path = folder_.file(gguf ? "changing.gguf" : "changing");
      if (gguf)
        tiny::write_gguf(path, tiny::small_llama(), "F32");
      else
        write_sound_folder(path);
      const std::string file = gguf ? path : path + "/model.safetensors";
      file_to_cut = cut ? file : "";
      file_to_touch = cut ? "" : file;
      const auto model = load_model(path, {.pool = &one, .progress = change_files});
      ASSERT_FALSE(model) << file;
      EXPECT_EQ(model.error().code, ErrorCode::io);
      EXPECT_EQ(model.error().field, file);
      EXPECT_NE(model.error().message.find("changed while in use"), std::string::npos) << model.error().message;
    }
  }
}

TEST_F(Malformed, InspectReportsTheContentsOfTheFile) {
  const std::string path = folder_.file("model.gguf");
  tiny::write_gguf(path, tiny::small_llama(), "mixed");
  const auto info = inspect(path);
  ASSERT_TRUE(info) << info.error().to_string();
  EXPECT_EQ(info->name, "tiny llama");
  EXPECT_EQ(info->architecture, "llama");
  EXPECT_EQ(info->weight_types, "Q4_K 10, F32 5, Q6_K 5, Q8_0 1");
  EXPECT_EQ(info->num_layers, 2U);
  EXPECT_EQ(info->num_kv_heads, 2U);
  EXPECT_EQ(info->head_dim, 64U);
  EXPECT_EQ(info->vocab_size, 300U);
  EXPECT_EQ(info->context_length, 128U);
  EXPECT_EQ(info->num_parameters, 2U * 300 * 256 + 2 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 256 * 256) + 5 * 256);
  EXPECT_EQ(info->tokenizer->algorithm, TokenizerSpec::Algorithm::unsupported);
}

TEST_F(Malformed, InspectPredictsTheBytesOfTheWeights) {
  const std::string path = folder_.file("model.gguf");
  for (const char* kind :
       {"F32", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4", "mixed"}) {
    tiny::write_gguf(path, tiny::small_llama(), kind);
    const auto info = inspect(path);
    const auto model = load_model(path, {.pool = &pool_});
    ASSERT_TRUE(info && model) << kind;
    EXPECT_NEAR(static_cast<double>((*model)->weight_bytes()), static_cast<double>(info->weight_bytes),
                0.05 * static_cast<double>(info->weight_bytes))
        << kind;
  }
}

TEST_F(Malformed, RequiresPositiveFiniteFrequencyFactors) {
  for (const float factor : {NAN, INFINITY, 0.0F, -1.0F}) {
    const Error error = load_changed([&](Tensors& tensors) {
      std::string bytes;
      for (int i = 0; i < 32; ++i) tiny::append(bytes, i == 3 ? factor : 1.0F);
      tensors.push_back({"rope_freqs.weight", GgmlType::f32, {32}, bytes});
    });
    EXPECT_EQ(error.code, ErrorCode::corrupt);
    EXPECT_EQ(error.field, "rope_freqs.weight");
  }
}

}  // namespace
}  // namespace quire
