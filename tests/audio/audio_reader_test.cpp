// The tests write files, compressed ones with libsndfile, and read them back.
#include "audio/audio_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "audio/log_mel.h"
#include "audio/wave_file.h"

#if QUIRE_AUDIO_TESTS
#include <sndfile.h>
#endif

namespace quire {
namespace {

TEST(AudioReaderTest, RefusesAudioInABuildWithoutTheLibraries) {
  if (check_audio_reader()) GTEST_SKIP() << "this build reads audio";
  const auto read = read_audio(wave_file(std::vector<float>(100, 0.5F), 16'000, 1), 10.0);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::unsupported);
  EXPECT_NE(read.error().message.find("libsndfile"), std::string::npos);
}

#if QUIRE_AUDIO_TESTS
std::vector<float> tone(double hz, int rate, double seconds, int channels = 1) {
  std::vector<float> samples;
  for (int i = 0; i < static_cast<int>(rate * seconds); ++i)
    for (int c = 0; c < channels; ++c) samples.push_back(static_cast<float>(0.5 * std::sin(2.0 * std::numbers::pi * hz * i / rate)));
  return samples;
}

struct Written {
  std::string bytes;
  std::size_t at = 0;
};

std::string encode(const std::vector<float>& samples, int rate, int channels, int format) {
  Written file;
  SF_VIRTUAL_IO io{[](void* f) { return static_cast<sf_count_t>(static_cast<Written*>(f)->bytes.size()); },
                   [](sf_count_t offset, int whence, void* f) {
                     Written& written = *static_cast<Written*>(f);
                     const std::size_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? written.at : written.bytes.size();
                     written.at = base + static_cast<std::size_t>(offset);
                     return static_cast<sf_count_t>(written.at);
                   },
                   [](void* out, sf_count_t count, void* f) {
                     Written& written = *static_cast<Written*>(f);
                     const std::size_t given = std::min(static_cast<std::size_t>(count), written.bytes.size() - written.at);
                     written.bytes.copy(static_cast<char*>(out), given, written.at);
                     written.at += given;
                     return static_cast<sf_count_t>(given);
                   },
                   [](const void* bytes, sf_count_t count, void* f) {
                     Written& written = *static_cast<Written*>(f);
                     const auto size = static_cast<std::size_t>(count);
                     written.bytes.resize(std::max(written.bytes.size(), written.at + size));
                     written.bytes.replace(written.at, size, static_cast<const char*>(bytes), size);
                     written.at += size;
                     return count;
                   },
                   [](void* f) { return static_cast<sf_count_t>(static_cast<Written*>(f)->at); }};
  SF_INFO info{.frames = 0, .samplerate = rate, .channels = channels, .format = format, .sections = 0, .seekable = 0};
  SNDFILE* encoder = sf_open_virtual(&io, SFM_WRITE, &info, &file);
  EXPECT_NE(encoder, nullptr) << sf_strerror(nullptr);
  if (encoder == nullptr) return {};
  sf_writef_float(encoder, samples.data(), static_cast<sf_count_t>(samples.size()) / channels);
  sf_close(encoder);
  return file.bytes;
}

struct AudioFormat {
  const char* name;
  int format;
  int rate;
};

constexpr AudioFormat kAudioFormats[] = {
    {"wav16", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 44'100},   {"wav24", SF_FORMAT_WAV | SF_FORMAT_PCM_24, 16'000},
    {"wav_float", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 8'000}, {"wav_ulaw", SF_FORMAT_WAV | SF_FORMAT_ULAW, 8'000},
    {"flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 48'000},   {"mp3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44'100},
    {"vorbis", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 22'050},  {"opus", SF_FORMAT_OGG | SF_FORMAT_OPUS, 48'000}};

// A tone of 440 Hz crosses zero 880 times per second in every format.
TEST(AudioReaderTest, ConvertsEveryFormatToOneRateAndOneChannel) {
  for (const AudioFormat& one : kAudioFormats) {
    for (const int channels : {1, 2}) {
      SCOPED_TRACE(one.name);
      const auto read = read_audio(encode(tone(440.0, one.rate, 2.0, channels), one.rate, channels, one.format), 10.0);
      ASSERT_TRUE(read.has_value()) << read.error().to_string();
      EXPECT_NEAR(static_cast<double>(read->size()), 32'000.0, 1'600.0);
      int crossings = 0;
      double loudest = 0.0;
      for (std::size_t i = 8'000; i < 24'000; ++i) {
        crossings += ((*read)[i - 1] < 0.0F) != ((*read)[i] < 0.0F) ? 1 : 0;
        loudest = std::max(loudest, std::fabs(static_cast<double>((*read)[i])));
      }
      EXPECT_NEAR(crossings, 880, 2);
      EXPECT_NEAR(loudest, 0.5, 0.05);
    }
  }
}

TEST(AudioReaderTest, SamplesAtTheTargetRateAreUnchanged) {
  const std::vector<float> samples = {0.0F, 0.5F, -0.25F, 1.0F, -1.0F};
  EXPECT_EQ(read_audio(wave_file(samples, 16'000, 1), 1.0).value(), samples);
  EXPECT_EQ(read_audio(wave_file({0.5F, -0.5F, 1.0F, 0.0F}, 16'000, 2), 1.0).value(), (std::vector<float>{0.0F, 0.5F}));
}

TEST(AudioReaderTest, RefusesAbsurdFiles) {
  const std::vector<float> some(64, 0.25F);
  const auto refused = [](std::string_view file, double most = 10.0) {
    const auto read = read_audio(file, most);
    EXPECT_FALSE(read.has_value());
    EXPECT_EQ(read ? "" : read.error().field, "file");
    return read ? ErrorCode::io : read.error().code;
  };
  EXPECT_EQ(refused(""), ErrorCode::invalid_argument);
  EXPECT_EQ(refused("a text, and no sound of any kind at all"), ErrorCode::invalid_argument);
  EXPECT_EQ(refused(wave_file(some, 1, 1)), ErrorCode::invalid_argument);              // 1 Hz
  EXPECT_EQ(refused(wave_file(some, 2'000'000'000, 1)), ErrorCode::invalid_argument);  // 2 GHz
  EXPECT_EQ(refused(wave_file(some, 16'000, 64)), ErrorCode::invalid_argument);        // channels
  EXPECT_EQ(refused(wave_file({}, 16'000, 1)), ErrorCode::invalid_argument);           // no samples
  EXPECT_EQ(refused(wave_file({std::numeric_limits<float>::quiet_NaN()}, 16'000, 1)), ErrorCode::invalid_argument);
  // The samples are finite, but the resampler's output is not.
  EXPECT_EQ(refused(wave_file(std::vector<float>(64, 3e38F), 15'913, 1)), ErrorCode::invalid_argument);
  EXPECT_EQ(refused(wave_file(std::vector<float>(16'001), 16'000, 1), 1.0), ErrorCode::too_large);
}

// Ten hours of silence fit into a small file.
TEST(AudioReaderTest, RefusesALongFileBeforeDecodingIt) {
  std::string file = encode(std::vector<float>(160'000), 16'000, 1, SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  EXPECT_LT(file.size(), 20'000U);
  const auto read = read_audio(file, 5.0);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::too_large);
  EXPECT_EQ(read.error().message, "is 10 s long");
}

// A truncated file must give an answer, and never more samples than the whole file.
TEST(AudioReaderTest, FilesMayEndAnywhere) {
  for (const AudioFormat& one : kAudioFormats) {
    SCOPED_TRACE(one.name);
    const std::string file = encode(tone(440.0, one.rate, 0.3), one.rate, 1, one.format);
    for (std::size_t size = 0; size < file.size(); size += 1 + file.size() / 97) {
      const auto read = read_audio(std::string_view(file).substr(0, size), 10.0);
      if (read) EXPECT_LT(read->size(), 16'000U);
    }
  }
}
#endif

}  // namespace
}  // namespace quire
