// Reads any bytes as an audio file. The result is a limited number of finite samples, or an error that says what is wrong.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "audio/audio_reader.h"
#include "audio/log_mel.h"
#include "base/check.h"
#include "fuzz/subject.h"

// libsndfile 1.2.0 leaks 6 KB for some Ogg files with a broken header.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libvorbis\n";
}

static quire::test::FuzzSubject subject("decoded audio");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr double kMostSeconds = 2.0;
  const auto samples = quire::read_audio({reinterpret_cast<const char*>(data), size}, kMostSeconds);
  if (!samples) {
    QUIRE_CHECK(samples.error().field == "file" && !samples.error().message.empty(), "an error says what is wrong");
    return 0;
  }
  subject.reached();
  QUIRE_CHECK(!samples->empty() && static_cast<double>(samples->size()) <= kMostSeconds * quire::kAudioSampleRate,
              "as many as were asked for");
  for (const float sample : *samples) QUIRE_CHECK(std::isfinite(sample), "samples are numbers");
  return 0;
}
