#include "runtime/worker/rope_positions.h"

#include <algorithm>

namespace quire {

void compute_rope_positions(std::span<const ImageGrid> pictures, std::uint32_t first, std::span<RopePosition> out) {
  const std::uint32_t end = first + static_cast<std::uint32_t>(out.size());
  std::uint32_t saved = 0;  // tokens of the images so far, minus the positions that they use
  const auto say = [&](std::uint32_t from, std::uint32_t to) {
    for (std::uint32_t at = std::max(from, first); at < std::min(to, end); ++at) out[at - first] = {at - saved, at - saved, at - saved};
  };
  std::uint32_t told = 0;
  for (const ImageGrid& picture : pictures) {
    if (picture.offset >= end) break;
    say(told, picture.offset);
    const std::uint32_t tokens = picture.rows * picture.columns, begin = picture.offset - saved;
    told = picture.offset + tokens;
    for (std::uint32_t at = std::max(picture.offset, first); at < std::min(told, end); ++at) {
      const std::uint32_t within = at - picture.offset;
      out[at - first] = {begin, begin + within / picture.columns, begin + within % picture.columns};
    }
    saved += tokens - std::max(picture.rows, picture.columns);
  }
  say(told, end);
}

}  // namespace quire
