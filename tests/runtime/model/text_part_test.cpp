// Folders of models that take images, too: what of them reads and writes text is the model of text alone.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/model/json_config.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

boost::json::object text_config(const std::string& type) {
  boost::json::object config{{"model_type", type},       {"vocab_size", 300},      {"hidden_size", 256},
                             {"intermediate_size", 256}, {"num_hidden_layers", 2}, {"num_attention_heads", 4},
                             {"num_key_value_heads", 2}, {"head_dim", 64},         {"max_position_embeddings", 128},
                             {"sliding_window", 16},     {"rms_norm_eps", 1e-6},   {"tie_word_embeddings", type != "mistral"}};
  return config;
}

std::vector<float> logits_of_folder(const std::string& path) {
  tiny::Rig rig(path, {});
  rig.give_blocks(Slot{0}, tiny::blocks_for(30, 16, 1));
  std::vector<TokenId> prompt;
  for (TokenId i = 0; i < 30; ++i) prompt.push_back(7 * i % 300);
  return rig.run(prompt, {{Slot{0}, 0, 30}});
}

// As published folders name them, and as transformers names them since.
std::string name_within(const std::string& name, bool is_newer) {
  if (!is_newer) return "language_model." + name;
  return name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
}

TEST(TextPart, IsTheModelOfTextAlone) {
  const tiny::TempFolder folder;
  for (const auto& [whole, type] : {std::pair("gemma3", "gemma3_text"), {"mistral3", "mistral"}}) {
    const boost::json::object text = text_config(type);
    const ModelConfig config = tiny::from_json(boost::json::serialize(text)).value();
    const auto tensors = tiny::make_tensors(config, false, "BF16");
    const std::string plain = folder.file(type);
    tiny::write_hf_folder(plain, text, tensors);
    const auto expected = logits_of_folder(plain);
    for (const bool is_newer : {false, true}) {
      auto all = tensors;
      for (tiny::Tensor& tensor : all) tensor.name = name_within(tensor.name, is_newer);
      for (const char* other : {"vision_tower.embeddings.weight", "multi_modal_projector.linear_1.weight"})
        all.push_back(tiny::make_tensor((is_newer ? "model." : "") + std::string(other), GgmlType::bf16, {4, 4}));
      const std::string path = folder.file(whole + std::string(is_newer ? "_newer" : ""));
      tiny::write_hf_folder(path, boost::json::object{{"model_type", whole}, {"text_config", text}}, all);
      EXPECT_EQ(logits_of_folder(path), expected) << whole;
      const auto info = inspect(path);
      ASSERT_TRUE(info);
      EXPECT_EQ(info->notes.size(), 1U);
    }
  }
}

// The smallest Gemma 3 says no more.
TEST(TextPart, GemmaLeavesOutWhatIsUsual) {
  const auto config = tiny::from_json(R"({"model_type": "gemma3", "text_config": {
      "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->num_heads, 8U);
  EXPECT_EQ(config->num_kv_heads, 4U);
  EXPECT_EQ(config->head_dim, 256U);
  EXPECT_EQ(config->context_length, 131072U);
  EXPECT_EQ(config->vocab_size, 262208U);
  EXPECT_TRUE(config->tied_embeddings);
}

TEST(TextPart, OfAnotherKindIsRefusedByItsName) {
  const auto config = tiny::from_json(R"({"model_type": "mistral3", "text_config": {"model_type": "ministral3"}})");
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("ministral3"), std::string::npos);
}

}  // namespace
}  // namespace quire
