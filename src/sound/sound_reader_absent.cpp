// Builds without libsndfile or libsoxr: sound is refused where it is asked for.
#include "sound/sound_reader.h"

namespace quire {

Result<void> check_sound_reader() {
  return fail(ErrorCode::unsupported, "file", "this build of quire has no libsndfile and libsoxr, which read sound files",
              "build with libsndfile1-dev and libsoxr-dev installed");
}

Result<std::vector<float>> read_sound(std::string_view /*file*/, double /*max_seconds*/) {
  return std::unexpected(check_sound_reader().error());
}

}  // namespace quire
