#pragma once
// Sound files from outside: nothing they say is trusted.
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Why this build reads no sound files; no error: it does.
Result<void> check_sound_reader();

// The samples of a WAV, FLAC, MP3 or Ogg file (Vorbis, Opus), all channels mixed into one, at kSoundRate. Memory is taken for
// `max_seconds` at most, whatever the file says. Errors of the field "file": `invalid_argument` (it is none of these, is cut short, has no
// samples, or absurd ones), `too_large` (it is longer), `unsupported` (check_sound_reader).
Result<std::vector<float>> read_sound(std::string_view file, double max_seconds);

}  // namespace quire
