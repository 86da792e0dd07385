// An explicit null in config.json has the meaning that transformers gives it (tools/record/config_nulls.py).
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "runtime/model/json_config.h"

namespace quire {
namespace {

namespace json = boost::json;

json::value read_record() {
  return read_json_file("tests/golden/config_nulls.json").value();
}

// Returns the config without `key`, or with this value.
Result<ModelConfig> config_with(json::object base, const std::string& key, std::optional<json::value> value) {
  base.erase(key);
  if (value) base[key] = *value;
  return tiny::from_json(json::serialize(base));
}

using Keys = std::set<std::pair<std::string, std::string>>;

// These nulls fail in transformers, but work here. In other families null means: as many heads, an even share, 1, no shared experts, or no
// window.
bool is_served(const std::string& type, const std::string& key) {
  static const std::set<std::string> kKeys{"num_key_value_heads", "n_shared_experts", "layer_types", "topk_group", "mamba_d_head"};
  static const Keys kOfFamilies{{"exaone4", "sliding_window"},
                                {"exaone4", "sliding_window_pattern"},
                                {"ministral", "sliding_window"},
                                {"ministral", "head_dim"},
                                {"hunyuan_v1_dense", "head_dim"},
                                {"hunyuan_v1_moe", "head_dim"},
                                {"falcon_h1", "embedding_multiplier"},
                                {"falcon_h1", "lm_head_multiplier"},
                                {"lfm2", "rope_theta"}};
  return kKeys.contains(key) || kOfFamilies.contains({type, key});
}

// These nulls change no logits of the recorded models: the default window is longer than the prompt, and there is no norm.
bool is_unseen(const std::string& type, const std::string& key) {
  static const Keys kOfFamilies{{"dots1", "sliding_window"}, {"falcon_h1", "mamba_norm_before_gate"}};
  return kOfFamilies.contains({type, key});
}

TEST(ConfigNulls, HaveTheMeaningOfTransformers) {
  const json::value recorded = read_record();
  ASSERT_GT(recorded.at("rows").as_array().size(), 600U);
  std::size_t num_meanings = 0;
  for (const json::value& row : recorded.at("rows").as_array()) {
    const std::string type(row.at("model_type").as_string()), key(row.at("key").as_string());
    json::object base = recorded.at("shapes").at(type).as_object();
    base["model_type"] = type;
    SCOPED_TRACE(type + ": " + key + ": " + json::serialize(row.at("null")));
    const auto whole = config_with(base, "", std::nullopt);
    EXPECT_TRUE(whole) << whole.error().to_string();
    if (!whole) continue;
    const auto null = config_with(base, key, json::value(nullptr)), absent = config_with(base, key, std::nullopt);
    if (row.at("null") == "error") {
      EXPECT_TRUE(!null || is_served(type, key));
    } else if (row.at("null") == "absent") {
      ASSERT_EQ(null.has_value(), absent.has_value()) << (null ? absent : null).error().to_string();
      if (null) EXPECT_TRUE(*null == *absent || is_unseen(type, key));
    } else if (row.at("null") == "off") {
      ASSERT_TRUE(null) << null.error().to_string();
      EXPECT_EQ(key == "attn_logit_softcapping" ? null->attention_soft_cap : null->logit_soft_cap, 0.0F);
      EXPECT_FALSE(*null == *absent);
      ++num_meanings;
    } else {
      const auto same = config_with(base, key, row.at("null").at("value"));
      ASSERT_TRUE(null && same) << (null ? same : null).error().to_string();
      EXPECT_TRUE(*null == *same);
      ++num_meanings;
    }
  }
  EXPECT_GT(num_meanings, 25U);
}

// In a decoder within a model that supports images, a missing key means the default; null does not.
TEST(ConfigNulls, InANestedDecoderDifferFromTheDefault) {
  const auto heads = [](const char* kv) {
    return tiny::from_json(R"({"model_type": "mistral3", "text_config": {"model_type": "mistral", "num_attention_heads": 16)" +
                           std::string(kv) + "}}");
  };
  EXPECT_EQ(heads("")->num_kv_heads, 8U);
  EXPECT_EQ(heads(R"(, "num_key_value_heads": null)")->num_kv_heads, 16U);
}

TEST(ConfigNulls, InRopeScalingEqualMissingKeysExceptForTruncate) {
  const auto yarn =
      [](const std::string& more) {
        return tiny::from_json(tiny::json_of("qwen3", R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": null,
        "original_max_position_embeddings": 64)" + more + "}"));
      };
  EXPECT_TRUE(yarn("")->rope_truncates);
  EXPECT_FALSE(yarn(R"(, "truncate": null)")->rope_truncates);
  EXPECT_TRUE(*yarn(R"(, "beta_fast": null)") == *yarn(""));
}

TEST(ConfigNulls, OfRequiredValuesAreRefusedWithTheKey) {
  EXPECT_EQ(tiny::from_json(tiny::json_of("qwen3", R"(, "rms_norm_eps": null)")).error().field, "config.json: rms_norm_eps");
  const auto whisper = tiny::from_json(R"({"model_type": "whisper", "d_model": null})");
  EXPECT_EQ(whisper.error().field, "config.json: d_model");
  EXPECT_TRUE(tiny::from_json(tiny::json_of("lfm2", R"(, "layer_types": ["conv", "full_attention"], "rms_norm_eps": null)")))
      << "lfm2 uses another key";
}

// The files come from tools/record/saved_configs.py.
TEST(SavedConfigs, OfBothVersionsOfTransformersGiveTheSameModel) {
  const auto older = read_json_file("tests/golden/saved_configs_4.json", kPythonJson).value().as_object();
  const auto newer = read_json_file("tests/golden/saved_configs_5.json", kPythonJson).value().as_object();
  std::size_t num_compared = 0;
  for (const auto& [name, saved] : newer) {
    const auto made = config_from_hf(JsonRef(saved, "config.json"));
    ASSERT_TRUE(made) << name << ": " << made.error().to_string();
    const auto* const other = older.if_contains(name);
    if (other == nullptr) continue;
    auto before = config_from_hf(JsonRef(*other, "config.json"));
    ASSERT_TRUE(before) << name << ": " << before.error().to_string();
    // If the parts of a config differ on tied embeddings, the weights decide (TextPart).
    EXPECT_TRUE(before->tied_embeddings == made->tied_embeddings || made->is_tied_if_no_output) << name;
    before->tied_embeddings = made->tied_embeddings;
    before->is_tied_if_no_output = made->is_tied_if_no_output;
    before->num_draft_layers = made->num_draft_layers;  // version 5 writes defaults, and the file need not contain these layers
    EXPECT_TRUE(*before == *made) << name;
    ++num_compared;
  }
  EXPECT_GT(num_compared, 45U);
}

TEST(ModelConfig, RefusesTimeStepLimitsThatChangeAnswers) {
  const std::string mamba = R"(, "mamba_n_heads": 8, "mamba_d_head": "auto", "mamba_d_state": 24, "attn_layer_indices": [1])";
  const auto bamba = [&](const std::string& limit) {
    const auto parsed = parse_json(tiny::json_of("bamba", mamba + R"(, "time_step_limit": )" + limit), "config.json", kPythonJson);
    return config_from_hf(JsonRef(parsed.value(), "config.json"));
  };
  for (const char* limit : {"[0.0, Infinity]", R"([0.0, {"__float__": "Infinity"}])", "[0.0, 1e38]", R"([0.0, "inf"])", "[]", "null"})
    EXPECT_TRUE(bamba(limit)) << limit;
  for (const char* limit : {"[0.001, Infinity]", "[0.0, 0.1]", "[0.0, NaN]", "[NaN, Infinity]"})
    EXPECT_EQ(bamba(limit).error().field, "config.json: time_step_limit") << limit;
}

}  // namespace
}  // namespace quire
