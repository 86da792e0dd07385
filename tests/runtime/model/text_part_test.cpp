// Folders of models that support images: their text decoder must equal the text-only model.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
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

// `places_rows` passes positions for the rows, as for a model with 3D positions; all are text positions.
std::vector<float> logits_of_folder(const std::string& path, bool places_rows = false) {
  tiny::Rig rig(path, {});
  rig.give_blocks(Slot{0}, tiny::blocks_for(30, 16, 1));
  std::vector<TokenId> prompt;
  for (TokenId i = 0; i < 30; ++i) prompt.push_back(7 * i % 300);
  const std::vector<BatchSequence> sequences = {{Slot{0}, 0, 30}};
  if (!places_rows) return rig.run(prompt, sequences);
  std::vector<std::uint32_t> rows;
  std::vector<RopePosition> places;
  for (std::uint32_t i = 0; i < 30; ++i) {
    rows.push_back(i);
    places.push_back({i, i, i});
  }
  std::vector<float> logits(std::size_t{30} * rig.vocab());
  rig.model().forward({prompt, sequences, rows, {}, places}, rig.cache(), rig.tables(), {logits});
  return logits;
}

// Returns the tensor name in published folders, or in folders that newer versions of transformers write.
std::string name_within(const std::string& name, bool is_newer) {
  if (!is_newer) return "language_model." + name;
  return name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
}

TEST(TextPart, EqualsTheTextModel) {
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

// Names tensors like AutoModel does: without the prefix of the decoder.
std::vector<tiny::Tensor> headless(std::vector<tiny::Tensor> tensors, bool keeps_head) {
  if (!keeps_head) std::erase_if(tensors, [](const tiny::Tensor& tensor) { return tensor.name == "lm_head.weight"; });
  for (tiny::Tensor& tensor : tensors)
    if (tensor.name.starts_with("model.")) tensor.name.erase(0, 6);
  return tensors;
}

TEST(HeadlessFolder, UsesTheOutputMatrixOfTheConfigAndTheFile) {
  const tiny::TempFolder folder;
  for (const bool is_tied : {false, true}) {
    boost::json::object config = text_config("mistral");
    config["tie_word_embeddings"] = is_tied;
    const auto tensors = tiny::make_tensors(tiny::from_json(boost::json::serialize(config)).value(), false, "BF16");
    const std::string name = is_tied ? "tied" : "apart";
    tiny::write_hf_folder(folder.file(name), config, tensors);
    const auto expected = logits_of_folder(folder.file(name));
    tiny::write_hf_folder(folder.file(name + "_headless"), config, headless(tensors, !is_tied));
    EXPECT_EQ(logits_of_folder(folder.file(name + "_headless")), expected) << name;
    EXPECT_TRUE(inspect(folder.file(name + "_headless"))->has_output);
  }
}

TEST(HeadlessFolder, GeneratesNothingWhenNoFileHasAnOutputMatrix) {
  const tiny::TempFolder folder;
  const boost::json::object config = text_config("mistral");
  const auto tensors = tiny::make_tensors(tiny::from_json(boost::json::serialize(config)).value(), false, "BF16");
  tiny::write_hf_folder(folder.file("base"), config, headless(tensors, false));
  const auto info = inspect(folder.file("base"));
  ASSERT_TRUE(info) << info.error().to_string();
  EXPECT_FALSE(info->has_output);
  ASSERT_EQ(info->notes.size(), 1U);
  EXPECT_NE(info->notes[0].find("lm_head.weight"), std::string::npos);
}

// Transformers 5 reads the outer config, transformers 4 the decoder's config, and a folder has both.
TEST(TextPart, TheFileDecidesOnTiedEmbeddingsWhenTheConfigsDiffer) {
  const tiny::TempFolder folder;
  for (const bool is_tied : {false, true}) {
    boost::json::object text = text_config("mistral");
    text["tie_word_embeddings"] = is_tied;
    const auto tensors = tiny::make_tensors(tiny::from_json(boost::json::serialize(text)).value(), false, "BF16");
    tiny::write_hf_folder(folder.file("plain"), text, tensors);
    const auto expected = logits_of_folder(folder.file("plain"));
    for (const bool of_text : {false, true}) {
      auto all = tensors;
      for (tiny::Tensor& tensor : all) tensor.name = name_within(tensor.name, false);
      text["tie_word_embeddings"] = of_text;
      const boost::json::object whole{{"model_type", "mistral3"}, {"text_config", text}, {"tie_word_embeddings", !of_text}};
      tiny::write_hf_folder(folder.file("whole"), whole, all);
      EXPECT_EQ(logits_of_folder(folder.file("whole")), expected) << is_tied << of_text;
    }
  }
}

// The smallest Gemma 3 has only these keys.
TEST(TextPart, GemmaHasDefaultsForMissingKeys) {
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

// Without images the three positions of a row are equal, and so are all bits.
TEST(TextPart, OfQwenVlEqualsQwen2) {
  const tiny::TempFolder folder;
  boost::json::object text = text_config("qwen2");
  text["use_sliding_window"] = false;
  text["rope_theta"] = 50000.0;
  const ModelConfig config = tiny::from_json(boost::json::serialize(text)).value();
  const auto tensors = tiny::make_tensors(config, false, "BF16");
  tiny::write_hf_folder(folder.file("plain"), text, tensors);
  const auto expected = logits_of_folder(folder.file("plain"));
  for (const char* whole : {"qwen2_vl", "qwen2_5_vl"}) {
    for (const bool is_newer : {false, true}) {
      auto all = tensors;
      for (tiny::Tensor& tensor : all)
        if (is_newer) tensor.name = name_within(tensor.name, true);
      all.push_back(tiny::make_tensor(is_newer ? "model.visual.merger.ln_q.weight" : "visual.merger.ln_q.weight", GgmlType::bf16, {4}));
      boost::json::object own = text;
      own["model_type"] = whole;
      own["rope_scaling"] = boost::json::object{{"type", "mrope"}, {"mrope_section", {8, 12, 12}}};
      boost::json::object outer = own;
      if (is_newer) {
        own["model_type"] = std::string(whole) + "_text";
        own["rope_scaling"] = boost::json::object{{"rope_type", "default"}, {"mrope_section", {8, 12, 12}}};
        own.erase("tie_word_embeddings");
        outer = {{"model_type", whole}, {"text_config", own}, {"tie_word_embeddings", true}};
      }
      const std::string path = folder.file(whole + std::string(is_newer ? "_newer" : ""));
      tiny::write_hf_folder(path, outer, all);
      EXPECT_EQ(logits_of_folder(path), expected) << whole;
      EXPECT_EQ(logits_of_folder(path, true), expected) << whole;
    }
  }
}

TEST(TextPart, RefusesInvalidMropeSectionsAndReportsTheKey) {
  const auto field_of = [](const std::string& scaling) {
    boost::json::object text = text_config("qwen2_5_vl");
    text["rope_scaling"] = boost::json::parse(scaling);
    const auto config = tiny::from_json(boost::json::serialize(text));
    return config ? std::string() : config.error().field;
  };
  EXPECT_EQ(field_of(R"({"type": "mrope", "mrope_section": [8, 12, 12]})"), "");
  EXPECT_EQ(field_of(R"({"type": "mrope", "mrope_section": [8, 12, 13]})"), "rope_scaling.mrope_section");
  EXPECT_EQ(field_of(R"({"type": "mrope", "mrope_section": [16, 16]})"), "config.json: rope_scaling.mrope_section");
  EXPECT_EQ(field_of(R"({"type": "mrope", "mrope_section": [8, 12, -1]})"), "config.json: rope_scaling.mrope_section[2]");
  EXPECT_EQ(field_of(R"({"type": "mrope"})"), "config.json: rope_scaling.mrope_section");
  EXPECT_EQ(field_of(R"({"type": "dynamic", "mrope_section": [8, 12, 12]})"), "config.json: rope_scaling.rope_type");
  EXPECT_EQ(field_of("null"), "config.json: rope_scaling.mrope_section");
}

TEST(TextPart, RefusesAnUnsupportedDecoderAndReportsItsType) {
  const auto config = tiny::from_json(R"({"model_type": "mistral3", "text_config": {"model_type": "ministral3"}})");
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("ministral3"), std::string::npos);
}

}  // namespace
}  // namespace quire
