// Compares Qwen2-VL and Qwen2.5-VL with transformers (tools/record/qwen_vl_logits.py), and tests which files are refused.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/model/logit_record.h"
#include "runtime/model/model.h"
#include "runtime/model/qwen_vision_encoder.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_qwen_vl.h"
#include "runtime/model/tiny_vision.h"

namespace quire {
namespace {

std::vector<std::uint32_t> numbers_of(const boost::json::value& list) {
  std::vector<std::uint32_t> numbers;
  for (const auto& number : list.as_array()) numbers.push_back(number.to_number<std::uint32_t>());
  return numbers;
}

struct QwenRecord {
  boost::json::value json;
  std::vector<TokenId> prompt;
  std::vector<std::uint32_t> positions, places;
  std::vector<RopePosition> rope_positions;
  std::vector<float> logits;  // [case][position][vocab]

  struct Drawn {
    std::vector<std::uint8_t> rgb;
    std::uint32_t width, height;
    [[nodiscard]] VisionTile tile() const { return {rgb, width, height}; }
  };
  std::vector<Drawn> pictures;
};

QwenRecord read_qwen_record() {
  QwenRecord record;
  auto json = read_json_file("tests/golden/logits/qwen_vl_cases.json");
  EXPECT_TRUE(json.has_value());
  record.json = std::move(*json);
  for (const std::uint32_t token : numbers_of(record.json.at("prompt"))) record.prompt.push_back(static_cast<TokenId>(token));
  record.positions = numbers_of(record.json.at("positions"));
  record.places = numbers_of(record.json.at("places"));
  for (const auto& of : record.json.at("rope_positions").as_array()) {
    const auto turns = numbers_of(of);
    record.rope_positions.push_back({turns[0], turns[1], turns[2]});
  }
  const auto square = record.json.at("square").to_number<std::uint32_t>();
  for (const auto& of : record.json.at("grids").as_array()) {
    const auto grid = numbers_of(of);
    const std::uint32_t width = grid[1] * square, height = grid[0] * square;
    record.pictures.push_back(
        {tiny::drawn_bytes("picture " + std::to_string(record.pictures.size()), std::size_t{3} * width * height), width, height});
  }
  std::ifstream file("tests/golden/logits/qwen_vl_logits.f32", std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  record.logits.resize(bytes.size() / sizeof(float));
  std::memcpy(record.logits.data(), bytes.data(), record.logits.size() * sizeof(float));
  return record;
}

std::vector<float> embeds_of_picture(VisionEncoder& encoder, const VisionTile& tile) {
  VisionRun run;
  encoder.begin(run, tile);
  while (!run.is_done()) encoder.advance(run);
  return {run.embeds().begin(), run.embeds().end()};
}

double qwen_difference(const QwenRecord& record, std::size_t number, const std::string& path, ActivationMode mode, KvDtype kv) {
  tiny::Rig rig(path, {.activations = mode, .kv = kv});
  EXPECT_NE(rig.model().vision(), nullptr);
  const std::uint32_t width = rig.model().info().hidden_size;
  std::vector<std::vector<float>> embeds;
  std::vector<EmbeddedRow> rows;
  for (std::size_t i = 0; i < record.pictures.size(); ++i) {
    embeds.push_back(embeds_of_picture(*rig.model().vision(), record.pictures[i].tile()));
    for (std::uint32_t at = 0; at < embeds.back().size() / width; ++at)
      rows.push_back({record.places[i] + at, embeds.back().data() + std::size_t{at} * width});
  }
  const auto tokens = static_cast<std::uint32_t>(record.prompt.size());
  rig.give_blocks(Slot{0}, tiny::blocks_for(tokens, 16, 3, 2));
  std::vector<float> logits(record.positions.size() * rig.vocab());
  const std::vector<BatchSequence> sequences = {{Slot{0}, 0, tokens}};
  rig.model().forward({record.prompt, sequences, record.positions, rows, record.rope_positions}, rig.cache(), rig.tables(), {logits});
  const std::vector<float> wanted(record.logits.begin() + static_cast<std::ptrdiff_t>(number * logits.size()),
                                  record.logits.begin() + static_cast<std::ptrdiff_t>((number + 1) * logits.size()));
  double most = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) most = std::max(most, std::fabs(static_cast<double>(logits[i]) - wanted[i]));
  return most / tiny::standard_deviation(wanted);
}

TEST(QwenVisionTest, LogitsAfterImagesMatchTransformers) {
  const QwenRecord record = read_qwen_record();
  const tiny::TempFolder folder;
  std::size_t number = 0;
  for (const auto& value : record.json.at("cases").as_array()) {
    const std::string name(value.at("name").as_string());
    const std::string path = folder.file(name);
    tiny::write_qwen_folder(path, value.at("config"), std::string(value.at("type").as_string()));
    const double floats = qwen_difference(record, number, path, ActivationMode::f32, KvDtype::f32);
    const double served = qwen_difference(record, number, path, ActivationMode::int16, KvDtype::bf16);
    std::printf("%s: %.2g with floats, %.2g as served\n", name.c_str(), floats, served);
    EXPECT_LE(floats, 1e-4) << name;
    EXPECT_LE(served, 0.05) << name;
    ++number;
  }
  EXPECT_EQ(number, 2);
}

TEST(QwenVisionTest, EmbeddingsDependOnlyOnTheImage) {
  const QwenRecord record = read_qwen_record();
  const tiny::TempFolder folder;
  for (const auto& value : record.json.at("cases").as_array()) {
    const std::string path = folder.file(std::string(value.at("name").as_string()));
    tiny::write_qwen_folder(path, value.at("config"), "F32");
    tiny::Rig one(path, {.num_threads = 1}), three(path, {.num_threads = 3});
    // Two runs alternate on other threads. One of them has run another image before.
    VisionEncoder& encoder = *three.model().vision();
    VisionRun first, second;
    const VisionTile& large = record.pictures[0].tile();
    const VisionTile& small = record.pictures[1].tile();
    encoder.begin(second, large);
    while (!second.is_done()) encoder.advance(second);
    encoder.begin(first, large);
    encoder.begin(second, small);
    while (!first.is_done() || !second.is_done()) {
      encoder.advance(first);
      encoder.advance(second);
      encoder.advance(second);
    }
    EXPECT_EQ(std::vector(first.embeds().begin(), first.embeds().end()), embeds_of_picture(*one.model().vision(), large));
    EXPECT_EQ(std::vector(second.embeds().begin(), second.embeds().end()), embeds_of_picture(*one.model().vision(), small));
  }
}

TEST(QwenVisionTest, WindowsMatchTransformers) {
  using Numbers = std::vector<std::uint32_t>;
  const WindowOrder ragged = window_order(3, 5, 2);
  EXPECT_EQ(ragged.embeds, (Numbers{0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(ragged.sizes, (Numbers{4, 4, 2, 2, 2, 1}));
  EXPECT_EQ(window_order(4, 2, 2).sizes, (Numbers{4, 4})) << "exact windows leave no empty window";
  EXPECT_EQ(window_order(2, 3, 0).embeds, (Numbers{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(window_order(2, 3, 0).sizes, (Numbers{6}));
}

TEST(QwenVisionTest, ReadsTheImageProcessorFromTheFolder) {
  const QwenRecord record = read_qwen_record();
  const tiny::TempFolder folder;
  tiny::write_qwen_folder(folder.file("model"), record.json.at("cases").as_array().front().at("config"), "F32");
  const auto info = inspect(folder.file("model"));
  ASSERT_TRUE(info.has_value()) << info.error().to_string();
  EXPECT_EQ(info->architecture, "qwen2_5_vl");
  EXPECT_EQ(info->pictures.processor, "qwen2_vl");
  EXPECT_EQ(info->pictures.embed_side, 8U);
  EXPECT_EQ(info->pictures.tile_tokens, 256U);
  EXPECT_EQ(info->pictures.max_tiles, 1U);
  EXPECT_EQ(info->pictures.filter, 3U);
  EXPECT_EQ(info->pictures.token, 299);
  EXPECT_TRUE(info->notes.empty());
  // The served context limits the size of images.
  ThreadPool pool(1);
  const auto model = load_model(folder.file("model"), {.max_model_len = 100, .pool = &pool});
  ASSERT_TRUE(model.has_value()) << model.error().to_string();
  EXPECT_EQ((*model)->info().pictures.tile_tokens, 100U);
}

TEST(QwenVisionTest, RefusesUnsupportedProcessorsAndReportsTheKey) {
  const QwenRecord record = read_qwen_record();
  const tiny::TempFolder folder;
  const std::string path = folder.file("model");
  tiny::write_qwen_folder(path, record.json.at("cases").as_array().front().at("config"), "F32");
  const auto note = [&](const std::string& text) {
    tiny::write_file(path + "/preprocessor_config.json", text);
    const auto info = inspect(path);
    return !info ? info.error().to_string() : info->notes.empty() ? "" : info->notes[0];
  };
  EXPECT_EQ(note(R"({"patch_size": 4})"), "");
  EXPECT_EQ(note(R"({"patch_size": 4, "size": {"shortest_edge": 64, "longest_edge": 4096}})"), "");
  for (const auto& [text, key] :
       {std::pair(R"({"patch_size": 4, "do_normalize": false})", "do_normalize"), std::pair(R"({"patch_size": 14})", "patch_size"),
        std::pair(R"({"patch_size": 4, "merge_size": 4})", "merge_size"),
        std::pair(R"({"patch_size": 4, "temporal_patch_size": 1})", "temporal_patch_size"),
        std::pair(R"({"patch_size": 4, "resample": 0})", "resample"), std::pair(R"({"patch_size": 4, "max_pixels": 0})", "max_pixels"),
        std::pair(R"({"patch_size": 4, "min_pixels": 4096, "max_pixels": 1024})", "min_pixels"),
        std::pair(R"({"patch_size": 4, "max_pixels": 99999999999})", "max_pixels")})
    EXPECT_NE(note(text).find(key), std::string::npos) << text << ": " << note(text);
}

TEST(QwenVisionTest, RefusesInvalidConfigs) {
  const QwenRecord record = read_qwen_record();
  const auto problem = [&](std::size_t number, auto change) {
    boost::json::value config = record.json.at("cases").as_array()[number].at("config");
    change(config.as_object(), config.as_object()["vision_config"].as_object());
    const auto read = config_from_hf(JsonRef(config, "config.json"));
    return read ? std::string() : read.error().field;
  };
  EXPECT_EQ(problem(0, [](auto&, auto&) {}), "");
  EXPECT_EQ(problem(0, [](auto&, auto& v) { v["patch_size"] = 0; }), "config.json: vision_config.patch_size");
  EXPECT_EQ(problem(0, [](auto&, auto& v) { v["num_heads"] = 7; }), "config.json: vision_config.num_heads");
  EXPECT_EQ(problem(0, [](auto&, auto& v) { v["num_heads"] = 8; }), "config.json: vision_config.num_heads");
  EXPECT_EQ(problem(0, [](auto&, auto& v) { v["hidden_act"] = "relu"; }), "config.json: vision_config.hidden_act");
  EXPECT_EQ(problem(0, [](auto&, auto& v) { v["window_size"] = 4; }), "config.json: vision_config.window_size");
  EXPECT_EQ(problem(0, [](auto&, auto& v) { v["fullatt_block_indexes"] = boost::json::parse("[-1]"); }),
            "config.json: vision_config.fullatt_block_indexes[0]");
  EXPECT_EQ(problem(0, [](auto&, auto& v) { v["out_hidden_size"] = 128; }), "config.json: vision_config.out_hidden_size");
  EXPECT_EQ(problem(0, [](auto&, auto& v) { v["in_channels"] = 1; }), "config.json: vision_config.in_channels");
  EXPECT_EQ(problem(0, [](auto& c, auto&) { c["image_token_id"] = 300; }), "config.json: image_token_id");
  EXPECT_EQ(problem(1, [](auto&, auto&) {}), "");
  EXPECT_EQ(problem(1, [](auto&, auto& v) { v["hidden_size"] = 128; }), "config.json: vision_config.hidden_size");
  EXPECT_EQ(problem(1, [](auto&, auto& v) { v["hidden_act"] = "mish"; }), "config.json: vision_config.hidden_act");
  EXPECT_EQ(problem(1, [](auto&, auto& v) { v["mlp_ratio"] = -1; }), "config.json: vision_config.mlp_ratio");
  EXPECT_EQ(problem(1, [](auto& c, auto&) { c["text_config"].as_object()["model_type"] = "llama"; }),
            "config.json: text_config.model_type");
}

}  // namespace
}  // namespace quire
