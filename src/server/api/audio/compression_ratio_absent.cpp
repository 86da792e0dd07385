// Used in builds without zlib, which do not detect repetitive text.
#include "server/api/audio/window_scores.h"

namespace quire {

std::optional<double> compression_ratio(std::string_view /*text*/) {
  return std::nullopt;
}

}  // namespace quire
