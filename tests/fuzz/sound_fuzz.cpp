// Any bytes as a sound file: samples that are numbers and not too many of them, or an error that says what is wrong.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "sound/log_mel.h"
#include "sound/sound_reader.h"

// libsndfile 1.2.0 forgets 6 KB of some Ogg files whose head is broken.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libvorbis\n";
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr double kMostSeconds = 2.0;
  const auto samples = quire::read_sound({reinterpret_cast<const char*>(data), size}, kMostSeconds);
  if (!samples) {
    QUIRE_CHECK(samples.error().field == "file" && !samples.error().message.empty(), "an error says what is wrong");
    return 0;
  }
  QUIRE_CHECK(!samples->empty() && static_cast<double>(samples->size()) <= kMostSeconds * quire::kSoundRate, "as many as were asked for");
  for (const float sample : *samples) QUIRE_CHECK(std::isfinite(sample), "samples are numbers");
  return 0;
}
