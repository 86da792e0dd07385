// Compares the experts of rows with transformers' routers (tools/record/routed_experts.py), and tests what a pass reports about them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runtime/model/logit_record.h"
#include "runtime/model/rig.h"

namespace quire {
namespace {

std::vector<std::uint16_t> experts_of(tiny::Rig& rig, const std::vector<TokenId>& prompt, const std::vector<std::uint32_t>& outputs) {
  const ModelInfo& info = rig.model().info();
  const auto tokens = static_cast<std::uint32_t>(prompt.size());
  std::vector<std::uint16_t> experts(prompt.size() * info.num_layers * info.experts_per_token, 7777);
  rig.model().forward({prompt, std::vector{BatchSequence{Slot{0}, 0, tokens}}, outputs}, rig.cache(), rig.tables(), {.experts = experts});
  return experts;
}

std::vector<std::uint32_t> all_rows(std::size_t count) {
  std::vector<std::uint32_t> rows(count);
  for (std::uint32_t i = 0; i < count; ++i) rows[i] = i;
  return rows;
}

// Some routers return the experts of a token in no particular order.
void expect_experts(const boost::json::array& expected, const std::vector<std::uint16_t>& experts, std::size_t per_layer) {
  std::size_t at = 0;
  for (std::size_t token = 0; token < expected.size(); ++token) {
    const auto& layers = expected[token].as_array();
    for (std::size_t layer = 0; layer < layers.size(); ++layer, at += per_layer) {
      std::vector<std::uint16_t> chosen(experts.begin() + static_cast<std::ptrdiff_t>(at),
                                        experts.begin() + static_cast<std::ptrdiff_t>(at + per_layer));
      auto wanted = tiny::numbers<std::uint16_t>(layers[layer]);
      if (wanted.empty()) wanted.assign(per_layer, 7777);
      std::ranges::sort(chosen);
      std::ranges::sort(wanted);
      EXPECT_EQ(chosen, wanted) << "token " << token << ", layer " << layer;
    }
  }
  EXPECT_EQ(at, experts.size());
}

TEST(RoutedExpertsModel, MatchTransformers) {
  const tiny::TempFolder folder;
  const auto json = read_json_file("tests/golden/logits/routed_experts.json");
  ASSERT_TRUE(json);
  std::map<std::string, tiny::LogitRecord> records;
  for (const auto& [name, value] : json->at("cases").as_object()) {
    SCOPED_TRACE(std::string(name));
    const std::string of(value.at("record").as_string());
    if (!records.contains(of)) records[of] = tiny::read_logit_record(of);
    const tiny::LogitRecord& record = records[of];
    const auto found = std::ranges::find(record.cases, std::string(name), &tiny::LogitCase::name);
    ASSERT_NE(found, record.cases.end());
    tiny::Rig rig(tiny::write_model(*found, folder), {.max_tokens = found->max_model_len});
    rig.give_blocks(Slot{0}, tiny::blocks_for(static_cast<std::uint32_t>(record.prompt.size()), 16, 3, 2));
    const auto experts = experts_of(rig, record.prompt, all_rows(record.prompt.size()));
    expect_experts(value.at("experts").as_array(), experts, rig.model().info().experts_per_token);
  }
  EXPECT_GE(json->at("cases").as_object().size(), 14U);
}

// The last layer does not compute other rows.
TEST(RoutedExpertsModel, ReportTheLastLayerOnlyForOutputRows) {
  const tiny::TempFolder folder;
  const std::string path = folder.file("model.gguf");
  ModelConfig config = tiny::small_mixture("qwen3_moe");
  config.context_length = 512;
  tiny::write_gguf(path, config, "F32");
  const std::vector<TokenId> prompt(300, 5);
  const auto reported = [&](const std::vector<std::uint32_t>& outputs) {
    tiny::Rig rig(path, {.max_rows = 300, .max_tokens = 304});
    rig.give_blocks(Slot{0}, tiny::blocks_for(300, 16, 1));
    return experts_of(rig, prompt, outputs);
  };
  const auto all = reported(all_rows(300)), some = reported({3, 4, 299});
  const std::size_t width = all.size() / 300, last = config.experts_per_token;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t row = i / width;
    const bool is_reported = row == 3 || row == 4 || row == 299 || i % width < width - last;
    EXPECT_EQ(some[i], is_reported ? all[i] : 7777) << i;
    EXPECT_LT(all[i], config.num_experts);
  }
}

}  // namespace
}  // namespace quire
