// The positions of rows after and within images must equal transformers' get_rope_index (tools/record/qwen_vl_logits.py).
#include "runtime/worker/rope_positions.h"

#include <gtest/gtest.h>

#include <vector>

#include "format/json.h"

namespace quire {
namespace {

TEST(RopePositions, MatchTransformersHoweverTheyAreSplit) {
  const auto json = read_json_file("tests/golden/logits/qwen_vl_cases.json");
  ASSERT_TRUE(json.has_value());
  const auto number = [](const boost::json::value& value) { return value.to_number<std::uint32_t>(); };
  std::vector<ImageGrid> pictures;
  for (std::size_t i = 0; i < json->at("places").as_array().size(); ++i) {
    const auto& grid = json->at("grids").as_array()[i];
    pictures.push_back({number(json->at("places").as_array()[i]), number(grid.at(0)), number(grid.at(1))});
  }
  std::vector<RopePosition> wanted;
  for (const auto& of : json->at("rope_positions").as_array()) wanted.push_back({number(of.at(0)), number(of.at(1)), number(of.at(2))});
  for (std::uint32_t first = 0; first < wanted.size(); ++first) {
    for (std::uint32_t end = first; end <= wanted.size(); ++end) {
      std::vector<RopePosition> placed(end - first);
      compute_rope_positions(pictures, first, placed);
      ASSERT_TRUE(std::equal(placed.begin(), placed.end(), wanted.begin() + first)) << first << " to " << end;
    }
  }
}

TEST(RopePositions, WithoutImagesCountTokens) {
  std::vector<RopePosition> placed(3);
  compute_rope_positions({}, 70, placed);
  EXPECT_EQ(placed, (std::vector<RopePosition>{{70, 70, 70}, {71, 71, 71}, {72, 72, 72}}));
}

// The second image begins where the first ends, and is as high as the first is wide.
TEST(RopePositions, ImagesMayFollowEachOther) {
  const std::vector<ImageGrid> pictures = {{1, 1, 3}, {4, 3, 1}};
  std::vector<RopePosition> placed(8);
  compute_rope_positions(pictures, 0, placed);
  EXPECT_EQ(placed, (std::vector<RopePosition>{{0, 0, 0}, {1, 1, 1}, {1, 1, 2}, {1, 1, 3}, {4, 4, 4}, {4, 5, 4}, {4, 6, 4}, {7, 7, 7}}));
}

}  // namespace
}  // namespace quire
