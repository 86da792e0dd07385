// Features must match transformers (tools/record/log_mel.py).
#include "audio/log_mel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "audio/toy_audio.h"

namespace quire {
namespace {

struct MelCase {
  const char* name;
  std::size_t samples;
  std::uint32_t bands;
};

constexpr MelCase kMelCases[] = {{"short", 11'237, 80}, {"whole", 480'000, 80}, {"wide", 480'000, 128}, {"few", 100, 128}};
constexpr std::uint32_t kMelFrames[] = {0, 1, 2, 35, 69, 70, 71, 72, 1500, 2997, 2998, 2999};

TEST(LogMelTest, MatchesTransformers) {
  std::ifstream file("tests/golden/log_mel.f32", std::ios::binary);
  for (const MelCase& one : kMelCases) {
    const std::vector<float> rows = LogMel(one.bands).compute(toy_audio(one.name, one.samples));
    ASSERT_EQ(rows.size(), std::size_t{kWindowFrames} * one.bands);
    for (const std::uint32_t frame : kMelFrames) {
      std::vector<float> expected(one.bands);
      ASSERT_TRUE(file.read(reinterpret_cast<char*>(expected.data()), static_cast<std::streamsize>(one.bands * sizeof(float))));
      for (std::uint32_t band = 0; band < one.bands; ++band)
        EXPECT_NEAR(rows[std::size_t{frame} * one.bands + band], expected[band], 2e-5) << one.name << " " << frame << " " << band;
    }
  }
  EXPECT_EQ(file.peek(), std::ifstream::traits_type::eof());
}

TEST(LogMelTest, SilenceIsConstantAndFinite) {
  const LogMel mel(80);
  const std::vector<float> none = mel.compute({});
  EXPECT_EQ(none, mel.compute(std::vector<float>(1234, 0.0F)));
  for (const float value : none) ASSERT_EQ(value, (std::log10(1e-10F) + 4.0F) / 4.0F);
}

// Absurdly loud audio must not give NaN or Inf.
TEST(LogMelTest, TheLoudestAudioIsFinite) {
  for (const float value : LogMel(80).compute(std::vector<float>(kWindowSamples, 3e38F))) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace quire
