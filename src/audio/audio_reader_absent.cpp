// Used in builds without libsndfile or libsoxr: requests with audio are refused.
#include "audio/audio_reader.h"

namespace quire {

Result<void> check_audio_reader() {
  return fail(ErrorCode::unsupported, "file", "this build of quire does not support audio: libsndfile and libsoxr are missing",
              "build quire with libsndfile1-dev and libsoxr-dev installed");
}

Result<std::vector<float>> read_audio(std::string_view /*file*/, double /*max_seconds*/) {
  return std::unexpected(check_audio_reader().error());
}

}  // namespace quire
