#pragma once
// Rotary positions for models that count rows and columns of images (M-RoPE, as in transformers' get_rope_index).
//
// Text tokens continue the count of the tokens before them. All tokens of an image have the temporal position at which the image begins;
// their row and column positions count from there. Text after the image continues after the highest of these positions. A position
// therefore depends only on the grids of earlier images. Keys in the KV cache are already rotated. Block hashes cover all tokens and images
// up to the end of the block, so equal hashes imply equal positions. A cached block is therefore valid for other requests with the same
// hash, and after a preemption.
#include <cstdint>
#include <span>

#include "runtime/model/model.h"

namespace quire {

// The grid of an image's embeddings in a prompt, row by row from the top.
struct ImageGrid {
  std::uint32_t offset = 0;             // position of the first embedding in the request
  std::uint32_t rows = 0, columns = 0;  // in embeddings
};

// Writes the rotary positions of tokens [first, first + out.size()) of a request. `pictures` are in ascending order and do not overlap.
void compute_rope_positions(std::span<const ImageGrid> pictures, std::uint32_t first, std::span<RopePosition> out);

}  // namespace quire
