#include <zlib.h>

#include "server/api/audio/window_scores.h"

namespace quire {

std::optional<double> compression_ratio(std::string_view text) {
  auto num_packed = compressBound(text.size());
  std::vector<Bytef> packed(num_packed);
  if (compress(packed.data(), &num_packed, reinterpret_cast<const Bytef*>(text.data()), text.size()) != Z_OK) return std::nullopt;
  return static_cast<double>(text.size()) / static_cast<double>(num_packed);
}

}  // namespace quire
