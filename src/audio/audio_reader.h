#pragma once
// Reads audio files from clients. Their content is not trusted.
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Returns an error with the reason if this build cannot read audio files.
Result<void> check_audio_reader();

// Returns the samples of a WAV, FLAC, MP3 or Ogg file (Vorbis, Opus) at kAudioSampleRate, with all channels mixed into one. Memory use is
// limited to `max_seconds` whatever the file states. Errors of the field "file": `invalid_argument` (another format, cut short, no samples,
// or invalid samples), `too_large` (the file is longer), `unsupported` (check_audio_reader).
Result<std::vector<float>> read_audio(std::string_view file, double max_seconds);

}  // namespace quire
