#include "cli/recommended_models.h"

#include <gtest/gtest.h>

#include "hub/model_name.h"

namespace quire {
namespace {

constexpr std::uint64_t kBytesPerGiB = std::uint64_t{1} << 30;

TEST(RecommendedModels, FitIntoTheMemory) {
  for (std::uint64_t gib = 1; gib <= 256; ++gib) {
    const auto models = models_that_fit(gib * kBytesPerGiB, 5);
    EXPECT_LE(models.size(), 5U);
    std::uint64_t before = UINT64_MAX;
    for (const RecommendedModel& model : models) {
      EXPECT_LE(model.memory_bytes(), gib * kBytesPerGiB / 5 * 4) << model.name;
      EXPECT_LE(model.file_bytes, before) << "the largest is first";
      before = model.file_bytes;
    }
  }
  EXPECT_TRUE(models_that_fit(kBytesPerGiB, 5).empty());
  EXPECT_EQ(models_that_fit(4 * kBytesPerGiB, 5).size(), 3U);
  EXPECT_EQ(models_that_fit(128 * kBytesPerGiB, 5).size(), 5U);
}

TEST(RecommendedModels, HaveNamesOfTheHubWithAQuantization) {
  for (const RecommendedModel& model : models_that_fit(UINT64_MAX, 100)) {
    const auto name = parse_model_name(model.name, "https://huggingface.co");
    ASSERT_TRUE(name && std::holds_alternative<HubName>(*name)) << model.name;
    EXPECT_FALSE(std::get<HubName>(*name).variant.empty()) << model.name;
  }
}

}  // namespace
}  // namespace quire
