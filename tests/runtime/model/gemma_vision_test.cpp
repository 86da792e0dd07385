// Tests which files of Gemma 3 with images are refused. vision_test.cpp tests its logits.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>

#include "runtime/model/model.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_vision.h"

namespace quire {
namespace {

class GemmaVision : public testing::Test {
 protected:
  static boost::json::value config() {
    return boost::json::parse(R"({"model_type": "gemma3", "image_token_index": 299, "mm_tokens_per_image": 4,
        "text_config": {"model_type": "gemma3_text", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
                        "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                          "num_attention_heads": 4, "image_size": 16, "patch_size": 4}})");
  }
  std::string folder() const {
    const std::string path = folder_.file("model");
    tiny::write_vision_folder(path, config(), "F32");
    return path;
  }
  // Returns the key that the error names.
  static std::string problem(auto change) {
    boost::json::value changed = config();
    change(changed.as_object());
    const auto read = config_from_hf(JsonRef(changed, "config.json"));
    return read ? std::string() : read.error().field;
  }

  tiny::TempFolder folder_;
};

TEST_F(GemmaVision, ReadsTheImageProcessorFromTheFolder) {
  const auto info = inspect(folder());
  ASSERT_TRUE(info.has_value()) << info.error().to_string();
  EXPECT_EQ(info->architecture, "gemma3");
  EXPECT_EQ(info->pictures.processor, "gemma3");
  EXPECT_EQ(info->pictures.tile_side, 16U);
  EXPECT_EQ(info->pictures.max_tokens(), 4U);
  EXPECT_EQ(info->pictures.filter, 2U);
  EXPECT_EQ(info->pictures.token, 299);
  EXPECT_TRUE(info->pictures.attends_bidirectionally);
  EXPECT_TRUE(info->notes.empty());
}

// The config is that of the published models of 4 to 27 billion parameters.
TEST_F(GemmaVision, ThePublishedConfigHas256TokensPerImage) {
  const auto json = boost::json::parse(R"({"model_type": "gemma3", "image_token_index": 262144, "mm_tokens_per_image": 256,
      "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
                      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
      "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
                        "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}})");
  const auto read = config_from_hf(JsonRef(json, "config.json"));
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->num_layers, 34U);
  EXPECT_EQ(read->num_heads, 8U);
  EXPECT_EQ(read->num_kv_heads, 4U);
  EXPECT_EQ(read->head_dim, 256U);
  EXPECT_EQ(read->vocab_size, 262208U);
  EXPECT_EQ(read->vision->num_patches(), 4096U);
  EXPECT_EQ(read->vision->num_embeds(), 256U);
  EXPECT_EQ(read->vision->shuffled_size(), 1152U);
}

TEST_F(GemmaVision, RefusesInvalidConfigsAndReportsTheKey) {
  EXPECT_EQ(problem([](auto&) {}), "");
  for (const int tokens : {0, 2, 9, 25, 1 << 20})
    EXPECT_EQ(problem([&](auto& c) { c["mm_tokens_per_image"] = tokens; }), "config.json: mm_tokens_per_image") << tokens;
  EXPECT_EQ(problem([](auto& c) { c["image_token_index"] = 300; }), "config.json: image_token_index");
  EXPECT_EQ(problem([](auto& c) { c["text_config"].as_object()["model_type"] = "llama"; }), "config.json: text_config.model_type");
  EXPECT_EQ(problem([](auto& c) { c["text_config"].as_object()["sliding_window"] = 3; }), "config.json: sliding_window");
  EXPECT_EQ(problem([](auto& c) { c["vision_config"].as_object()["patch_size"] = 0; }), "config.json: vision_config.patch_size");
  EXPECT_EQ(problem([](auto& c) { c.erase("text_config"); }), "config.json: text_config");
}

TEST_F(GemmaVision, RefusesUnsupportedProcessorsAndReportsTheKey) {
  const std::string path = folder();
  const auto note = [&] {
    const auto info = inspect(path);
    if (!info) return info.error().to_string();
    return info->notes.empty() ? "" : info->notes[0];
  };
  const std::string size = R"("size": {"height": 16, "width": 16})";
  // In the published file null equals a missing key.
  tiny::write_file(
      path + "/preprocessor_config.json",
      R"({"do_convert_rgb": null, "do_pan_and_scan": null, "pan_and_scan_max_num_crops": null, "image_seq_length": 4, )" + size + "}");
  EXPECT_EQ(note(), "");
  for (const auto& [text, key] :
       {std::pair(R"({"do_pan_and_scan": true, )" + size + "}", "do_pan_and_scan"), std::pair(std::string("{}"), "size"),
        std::pair(std::string(R"({"size": {"height": 16, "width": 32}})"), "size"),
        std::pair(R"({"image_seq_length": 9, )" + size + "}", "image_seq_length"),
        std::pair(R"({"do_resize": false, )" + size + "}", "do_resize")}) {
    tiny::write_file(path + "/preprocessor_config.json", text);
    EXPECT_NE(note().find("preprocessor_config.json: " + std::string(key)), std::string::npos) << text << " gives " << note();
  }
}

TEST_F(GemmaVision, ReadsTensorsByTheNamesOfEachVersion) {
  ThreadPool pool(1);
  EXPECT_TRUE(load_model(folder(), {.pool = &pool}).has_value());
  using Rename = std::string (*)(std::string);
  for (const auto& [name, rename] :
       std::initializer_list<std::pair<const char*, Rename>>{{"older", tiny::older_name}, {"newest", tiny::newest_name}}) {
    tiny::write_vision_folder(folder_.file(name), config(), "F32", 0, rename);
    const auto loaded = load_model(folder_.file(name), {.pool = &pool});
    EXPECT_TRUE(loaded.has_value()) << loaded.error().to_string();
  }
}

}  // namespace
}  // namespace quire
