// Compares models that support images with transformers (tools/record/picture_logits.py), and tests which files are refused.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/model/logit_record.h"
#include "runtime/model/model.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_vision.h"
#include "runtime/model/vision_encoder.h"

namespace quire {
namespace {

struct PictureRecord {
  boost::json::value json;
  std::vector<TokenId> prompt;
  std::vector<std::uint32_t> positions, places;
  std::uint32_t tile_tokens = 0, tile_side = 0;
  std::vector<float> logits;  // [case][position][vocab]

  // Reads the prompt of `value`.
  void read_prompt(const boost::json::object& value) {
    prompt.clear();
    places.clear();
    for (const auto& token : value.at("prompt").as_array()) prompt.push_back(token.to_number<TokenId>());
    for (const auto& at : value.at("places").as_array()) places.push_back(at.to_number<std::uint32_t>());
    tile_tokens = value.at("tile_tokens").to_number<std::uint32_t>();
    tile_side = value.at("tile_side").to_number<std::uint32_t>();
  }
};

PictureRecord read_picture_record() {
  PictureRecord record;
  auto json = read_json_file("tests/golden/logits/picture_cases.json");
  EXPECT_TRUE(json.has_value());
  record.json = std::move(*json);
  record.read_prompt(record.json.as_object());
  for (const auto& at : record.json.at("positions").as_array()) record.positions.push_back(at.to_number<std::uint32_t>());
  std::ifstream file("tests/golden/logits/picture_logits.f32", std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  record.logits.resize(bytes.size() / sizeof(float));
  std::memcpy(record.logits.data(), bytes.data(), record.logits.size() * sizeof(float));
  return record;
}

// Returns the embeddings of the tiles in order, each computed in units.
std::vector<float> embeds_of(VisionEncoder& encoder, std::span<const std::uint8_t> tiles) {
  const std::size_t bytes = std::size_t{3} * encoder.config().image_size * encoder.config().image_size;
  std::vector<float> all;
  VisionRun run;
  for (; !tiles.empty(); tiles = tiles.subspan(bytes)) {
    encoder.begin(run, tiles.first(bytes));
    while (!run.is_done()) encoder.advance(run);
    all.insert(all.end(), run.embeds().begin(), run.embeds().end());
  }
  return all;
}

std::vector<EmbeddedRow> rows_of(const PictureRecord& record, const std::vector<float>& embeds, std::uint32_t width) {
  std::vector<EmbeddedRow> rows;
  for (const std::uint32_t place : record.places)
    for (std::uint32_t i = 0; i < record.tile_tokens; ++i) rows.push_back({place + i, embeds.data() + rows.size() * width});
  return rows;
}

// Returns the last visible position of each row if a tile's rows attend to the whole tile.
std::vector<std::uint32_t> last_seen_of(const PictureRecord& record, const VisionConfig& vision) {
  std::vector<std::uint32_t> last(record.prompt.size());
  for (std::uint32_t i = 0; i < last.size(); ++i) last[i] = i;
  for (const std::uint32_t place : record.places)
    for (std::uint32_t i = 0; vision.attends_bidirectionally && i < record.tile_tokens; ++i)
      last[place + i] = place + record.tile_tokens - 1;
  return last;
}

double picture_difference(const PictureRecord& record, std::size_t number, const std::string& path, ActivationMode mode, KvDtype kv) {
  tiny::Rig rig(path, {.activations = mode, .kv = kv});
  EXPECT_NE(rig.model().vision(), nullptr);
  const std::size_t bytes = std::size_t{3} * record.tile_side * record.tile_side;
  const std::vector<float> embeds = embeds_of(*rig.model().vision(), tiny::drawn_bytes("tile", record.places.size() * bytes));
  const auto rows = rows_of(record, embeds, rig.model().info().hidden_size);
  const auto tokens = static_cast<std::uint32_t>(record.prompt.size());
  rig.give_blocks(Slot{0}, tiny::blocks_for(tokens, 16, 3, 2));
  std::vector<float> logits(record.positions.size() * rig.vocab());
  const std::vector<BatchSequence> sequences = {{Slot{0}, 0, tokens}};
  const auto last_seen = last_seen_of(record, rig.model().vision()->config());
  rig.model().forward({record.prompt, sequences, record.positions, rows, {}, last_seen}, rig.cache(), rig.tables(), {logits});
  const std::vector<float> wanted(record.logits.begin() + static_cast<std::ptrdiff_t>(number * logits.size()),
                                  record.logits.begin() + static_cast<std::ptrdiff_t>((number + 1) * logits.size()));
  double most = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) most = std::max(most, std::fabs(static_cast<double>(logits[i]) - wanted[i]));
  return most / tiny::standard_deviation(wanted);
}

// The encoder is cached next to the decoder, so that no start packs it again.
TEST(VisionTest, EncodersAreCachedBetweenStarts) {
  const PictureRecord record = read_picture_record();
  const tiny::TempFolder folder;
  for (const auto& value : record.json.at("cases").as_array()) {
    const std::string name(value.at("name").as_string());
    tiny::write_vision_folder(folder.file(name), value.at("config"), std::string(value.at("type").as_string()));
    const auto embeds = [&](const WeightsOptions& weights) {
      tiny::Rig rig(folder.file(name), {.weights = weights});
      const std::uint32_t side = rig.model().vision()->config().image_size;
      EXPECT_TRUE(weights.cache_folder.empty() || rig.model().info().packing_notes.empty()) << rig.model().info().packing_notes[0];
      return embeds_of(*rig.model().vision(), tiny::drawn_bytes("tile", std::size_t{3} * side * side));
    };
    const WeightsOptions kept{.cache_folder = folder.file("kept " + name)};
    const std::vector<float> expected = embeds({});
    EXPECT_EQ(embeds(kept), expected) << name;
    std::vector<std::filesystem::path> files;
    for (const auto& file : std::filesystem::directory_iterator(kept.cache_folder)) files.push_back(file.path());
    EXPECT_EQ(files.size(), 2U) << name;
    const auto numbers = [&] {
      std::vector<ino_t> all;
      for (const auto& file : files) {
        struct stat info{};
        EXPECT_EQ(::stat(file.c_str(), &info), 0);
        all.push_back(info.st_ino);
      }
      return all;
    };
    const std::vector<ino_t> written = numbers();
    EXPECT_EQ(embeds(kept), expected) << name;
    EXPECT_EQ(numbers(), written) << name << ": not written again";
  }
}

TEST(VisionTest, LogitsAfterImagesMatchTransformers) {
  PictureRecord record = read_picture_record();
  const boost::json::array cases = record.json.at("cases").as_array();
  const tiny::TempFolder folder;
  std::size_t number = 0;
  for (const auto& value : cases) {
    const std::string name(value.at("name").as_string());
    const std::string path = folder.file(name);
    if (value.as_object().contains("prompt")) record.read_prompt(value.as_object());
    tiny::write_vision_folder(path, value.at("config"), std::string(value.at("type").as_string()));
    const double floats = picture_difference(record, number, path, ActivationMode::f32, KvDtype::f32);
    const double served = picture_difference(record, number, path, ActivationMode::int16, KvDtype::bf16);
    std::printf("%s: %.2g with floats, %.2g as served\n", name.c_str(), floats, served);
    EXPECT_LE(floats, 1e-4) << name;
    EXPECT_LE(served, 0.05) << name;
    ++number;
  }
  EXPECT_EQ(number, 6);
}

class ImageModel {
 public:
  ImageModel() : record_(read_picture_record()), path_(folder_.file("model")) {
    tiny::write_vision_folder(path_, record_.json.at("cases").as_array().front().at("config"), "F32");
  }
  const PictureRecord& record() const { return record_; }
  const std::string& path() const { return path_; }

 private:
  tiny::TempFolder folder_;
  PictureRecord record_;
  std::string path_;
};

TEST(VisionTest, EmbeddingsDependOnlyOnTheTile) {
  const ImageModel seeing;
  const std::size_t bytes = std::size_t{3} * seeing.record().tile_side * seeing.record().tile_side;
  const std::vector<std::uint8_t> tiles = tiny::drawn_bytes("tile", 2 * bytes);
  tiny::Rig one(seeing.path(), {.num_threads = 1}), three(seeing.path(), {.num_threads = 3});
  const std::vector<float> together = embeds_of(*one.model().vision(), tiles);
  // Two runs alternate on other threads.
  VisionEncoder& encoder = *three.model().vision();
  VisionRun first, second;
  encoder.begin(first, std::span(tiles).first(bytes));
  encoder.begin(second, std::span(tiles).last(bytes));
  while (!first.is_done() || !second.is_done()) {
    encoder.advance(first);
    encoder.advance(second);
    encoder.advance(second);
  }
  std::vector<float> apart(first.embeds().begin(), first.embeds().end());
  apart.insert(apart.end(), second.embeds().begin(), second.embeds().end());
  EXPECT_EQ(apart, together);
}

TEST(VisionTest, ReadsTheImageProcessorFromTheFolder) {
  const ImageModel seeing;
  const auto info = inspect(seeing.path());
  ASSERT_TRUE(info.has_value()) << info.error().to_string();
  EXPECT_EQ(info->architecture, "idefics3");
  EXPECT_EQ(info->pictures.processor, "idefics3");
  EXPECT_EQ(info->pictures.tile_side, 16U);
  EXPECT_EQ(info->pictures.tile_tokens, 4U);
  EXPECT_EQ(info->pictures.max_tiles, 17U);
  EXPECT_EQ(info->pictures.token, 299);
  EXPECT_TRUE(info->notes.empty());
}

// KV blocks that were computed after images belong to another model if the image processing differs.
TEST(VisionTest, ImageProcessingIsPartOfTheModelsDigest) {
  const ImageModel seeing;
  const auto digest = [&] { return ModelFile::open(seeing.path()).value().digest().value(); };
  const Sha256Digest same = digest();
  EXPECT_EQ(digest(), same);
  tiny::write_file(seeing.path() + "/preprocessor_config.json", R"({"resample": 2, "max_image_size": {"longest_edge": 16}})");
  EXPECT_NE(digest(), same);
}

TEST(VisionTest, ServesOnlyTextWithoutAnImageProcessor) {
  const ImageModel seeing;
  std::filesystem::remove(seeing.path() + "/preprocessor_config.json");
  const auto info = inspect(seeing.path());
  ASSERT_TRUE(info.has_value());
  EXPECT_FALSE(info->pictures.any());
  ASSERT_EQ(info->notes.size(), 1U);
  EXPECT_TRUE(info->notes[0].starts_with("images are not supported: ")) << info->notes[0];
  tiny::Rig rig(seeing.path(), {});
  EXPECT_EQ(rig.model().vision(), nullptr);
}

TEST(VisionTest, RefusesUnsupportedProcessorsAndReportsTheKey) {
  const ImageModel seeing;
  for (const auto& [text, key] : {std::pair(R"({"do_normalize": false, "max_image_size": {"longest_edge": 16}})", "do_normalize"),
                                  std::pair(R"({"resample": 0, "max_image_size": {"longest_edge": 16}})", "resample"),
                                  std::pair(R"({"max_image_size": {"longest_edge": 32}})", "max_image_size"),
                                  std::pair(R"({"image_std": [1, 0, 1], "max_image_size": {"longest_edge": 16}})", "image_std"),
                                  std::pair(R"({"image_mean": [1], "max_image_size": {"longest_edge": 16}})", "image_mean")}) {
    tiny::write_file(seeing.path() + "/preprocessor_config.json", text);
    const auto info = inspect(seeing.path());
    ASSERT_TRUE(info.has_value() && info->notes.size() == 1) << text;
    EXPECT_NE(info->notes[0].find(key), std::string::npos) << info->notes[0];
  }
}

TEST(VisionTest, RefusesInvalidConfigs) {
  const PictureRecord record = read_picture_record();
  const auto problem = [&](auto change) {
    boost::json::value config = record.json.at("cases").as_array().front().at("config");
    change(config.as_object());
    const auto read = config_from_hf(JsonRef(config, "config.json"));
    return read ? std::string() : read.error().field;
  };
  EXPECT_EQ(problem([](auto&) {}), "");
  EXPECT_EQ(problem([](auto& c) { c["vision_config"].as_object()["patch_size"] = 5; }), "config.json: vision_config.patch_size");
  EXPECT_EQ(problem([](auto& c) { c["vision_config"].as_object()["num_attention_heads"] = 7; }),
            "config.json: vision_config.num_attention_heads");
  EXPECT_EQ(problem([](auto& c) { c["vision_config"].as_object()["hidden_act"] = "mish"; }), "config.json: vision_config.hidden_act");
  EXPECT_EQ(problem([](auto& c) { c["scale_factor"] = 3; }), "config.json: vision_config.patch_size");
  EXPECT_EQ(problem([](auto& c) { c["image_token_id"] = 300; }), "config.json: image_token_id");
  EXPECT_EQ(problem([](auto& c) { c["text_config"].as_object()["model_type"] = "mistral"; }), "config.json: text_config.model_type");
  EXPECT_EQ(problem([](auto& c) { c.erase("vision_config"); }), "config.json: vision_config");
}

class Llava : public testing::Test {
 protected:
  // Case 2 has CLIP and a llama; case 3 has SigLIP and a qwen2.
  boost::json::value config(std::size_t number = 2) const { return record_.json.at("cases").at(number).at("config"); }
  std::string folder(std::size_t number = 2, std::string (*rename)(std::string) = nullptr) const {
    const std::string path = folder_.file("model" + std::to_string(number));
    std::filesystem::remove_all(path);
    tiny::write_vision_folder(path, config(number), "F32", 0, rename);
    return path;
  }
  // Returns why images are not supported.
  static std::string note(const std::string& path) {
    const auto info = inspect(path);
    if (!info) return info.error().to_string();
    return info->notes.empty() ? "" : info->notes[0];
  }

  tiny::TempFolder folder_;
  PictureRecord record_ = read_picture_record();
};

TEST_F(Llava, ReadsTensorsByTheNamesOfEachVersion) {
  PictureRecord record = record_;
  record.read_prompt(record.json.at("cases").at(2).as_object());
  for (auto* const rename : {tiny::older_name, tiny::newest_name, static_cast<std::string (*)(std::string)>(nullptr)})
    EXPECT_LE(picture_difference(record, 2, folder(2, rename), ActivationMode::f32, KvDtype::f32), 1e-4);
}

TEST_F(Llava, ReadsTheImageProcessorFromTheFolder) {
  const auto clip = inspect(folder(2)), siglip = inspect(folder(3));
  ASSERT_TRUE(clip.has_value() && siglip.has_value());
  EXPECT_EQ(clip->architecture, "llava");
  EXPECT_EQ(clip->pictures.processor, "llava");
  EXPECT_EQ(clip->pictures.tile_side, 16U);
  EXPECT_EQ(clip->pictures.shortest_edge, 16U);
  EXPECT_EQ(clip->pictures.tile_tokens, 16U);
  EXPECT_EQ(clip->pictures.max_tokens(), 16U);
  EXPECT_EQ(clip->pictures.token, 299);
  EXPECT_EQ(clip->pictures.mean[0], 0.48145466F);
  EXPECT_EQ(siglip->pictures.shortest_edge, 0U);
  EXPECT_EQ(siglip->pictures.tile_side, 18U);
  EXPECT_EQ(siglip->pictures.deviation[2], 0.5F);
  EXPECT_TRUE(clip->notes.empty() && siglip->notes.empty());
}

TEST_F(Llava, RefusesUnsupportedProcessorsAndReportsTheKey) {
  const std::string path = folder();
  const std::string good = R"("size": 16, "crop_size": 16)";
  tiny::write_file(path + "/preprocessor_config.json", "{" + good + "}");
  EXPECT_EQ(note(path), "");
  for (const auto& [text, key] :
       {std::pair(R"({"size": 16, "crop_size": 24})", "crop_size"), std::pair(R"({"size": 8, "crop_size": 16})", "size"),
        std::pair(R"({"size": {"height": 16, "width": 20}, "crop_size": 16})", "size"),
        std::pair(R"({"size": 4000000000, "crop_size": 16})", "size"),
        std::pair(R"({"size": 16, "do_center_crop": false})", "do_center_crop"),
        std::pair(R"({"size": 16, "crop_size": 16, "do_pad": true})", "do_pad"),
        std::pair(R"({"size": 16, "crop_size": 16, "do_normalize": false})", "do_normalize"),
        std::pair(R"({"size": 16, "crop_size": 16, "image_processor_type": "ViTImageProcessor"})", "image_processor_type")}) {
    tiny::write_file(path + "/preprocessor_config.json", text);
    EXPECT_NE(note(path).find("preprocessor_config.json: " + std::string(key)), std::string::npos) << text << " gives " << note(path);
  }
  tiny::write_file(path + "/preprocessor_config.json", "{" + good + "}");
  for (const auto& [text, key] :
       {std::pair(R"({"patch_size": 14})", "patch_size"),
        std::pair(R"({"num_additional_image_tokens": 0, "vision_feature_select_strategy": "default"})", "num_additional_image_tokens"),
        std::pair(R"({"num_additional_image_tokens": 1})", "num_additional_image_tokens"),
        std::pair(R"({"image_token": "[IMG]"})", "image_token")}) {
    tiny::write_file(path + "/processor_config.json", text);
    EXPECT_NE(note(path).find("processor_config.json: " + std::string(key)), std::string::npos) << text << " gives " << note(path);
  }
  tiny::write_file(path + "/processor_config.json",
                   R"({"patch_size": 4, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"})");
  EXPECT_EQ(note(path), "");
}

TEST_F(Llava, RefusesInvalidConfigsAndReportsTheKey) {
  const auto problem = [&](auto change) {
    boost::json::value changed = config();
    change(changed.as_object());
    const auto read = config_from_hf(JsonRef(changed, "config.json"));
    return read ? std::string() : read.error().field;
  };
  const auto tower = [&](const char* key, boost::json::value value) {
    return problem([&](auto& c) { c["vision_config"].as_object()[key] = value; });
  };
  EXPECT_EQ(problem([](auto&) {}), "");
  EXPECT_EQ(tower("model_type", "pixtral"), "config.json: vision_config.model_type");
  EXPECT_EQ(tower("patch_size", 17), "config.json: vision_config.patch_size");
  EXPECT_EQ(tower("hidden_size", 1U << 20U), "config.json: vision_config.hidden_size");
  EXPECT_EQ(tower("image_size", 0), "config.json: vision_config.image_size");
  EXPECT_EQ(tower("num_hidden_layers", 0), "config.json: vision_feature_layer");
  EXPECT_EQ(tower("num_hidden_layers", 4'000'000'000U), "config.json: vision_config.num_hidden_layers");
  EXPECT_EQ(problem([](auto& c) { c["vision_feature_layer"] = -4; }), "config.json: vision_feature_layer");
  EXPECT_EQ(problem([](auto& c) { c["vision_feature_layer"] = 4; }), "config.json: vision_feature_layer");
  EXPECT_EQ(problem([](auto& c) { c["vision_feature_layer"] = boost::json::array{-2, 1}; }), "config.json: vision_feature_layer");
  EXPECT_EQ(problem([](auto& c) { c["vision_feature_select_strategy"] = "all"; }), "config.json: vision_feature_select_strategy");
  EXPECT_EQ(problem([](auto& c) { c["projector_hidden_act"] = "mish"; }), "config.json: projector_hidden_act");
  EXPECT_EQ(problem([](auto& c) { c["image_token_index"] = 300; }), "config.json: image_token_index");
  EXPECT_EQ(problem([](auto& c) { c["text_config"].as_object()["model_type"] = "gemma2"; }), "config.json: text_config.model_type");
}

// The most widely served LLaVA has only these keys.
TEST_F(Llava, TheDecoderHasDefaultsForMissingKeys) {
  const auto json = boost::json::parse(R"({"model_type": "llava", "image_token_index": 32000, "text_config": {"model_type": "llama",
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "vocab_size": 32064}, "vision_config": {"model_type": "clip_vision_model",
      "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
      "patch_size": 14}})");
  const auto read = config_from_hf(JsonRef(json, "config.json"));
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->num_layers, 32U);
  EXPECT_EQ(read->hidden_size, 4096U);
  EXPECT_EQ(read->intermediate_size, 11008U);
  EXPECT_EQ(read->num_kv_heads, 32U);
  EXPECT_EQ(read->context_length, 4096U);
  EXPECT_EQ(read->vision->num_layers, 23U);
  EXPECT_EQ(read->vision->num_embeds(), 576U);
  EXPECT_EQ(read->vision->activation, VisionActivation::quick_gelu);
}

TEST_F(Llava, RefusesTensorsThatContradictTheConfigAndReportsThem) {
  boost::json::value changed = config();
  changed.as_object()["vision_config"].as_object()["num_hidden_layers"] = 2;
  const std::string path = folder();
  tiny::write_file(path + "/config.json", boost::json::serialize(changed));
  ThreadPool pool(1);
  const auto loaded = load_model(path, {.pool = &pool});
  ASSERT_FALSE(loaded.has_value());
  EXPECT_NE(loaded.error().field.find("vision_tower.vision_model.encoder.layers.2."), std::string::npos) << loaded.error().to_string();
}

}  // namespace
}  // namespace quire
