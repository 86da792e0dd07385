#pragma once
// Where rows stand for models that count rows and columns of pictures (M-RoPE, as transformers' get_rope_index).
//
// A text's tokens count on from what is before them. A picture's all have the time at which it begins, and rows and columns count from
// there; what follows goes on behind the highest of these. So a place depends on the pictures before it and their grids alone. Blocks of
// the KV cache, whose keys are turned already, are named by the tokens and pictures up to their end: the same name has the same positions,
// and what was computed for another request, or before a preemption, fits.
#include <cstdint>
#include <span>

#include "runtime/model/model.h"

namespace quire {

// A picture's embeddings in a prompt, row by row from its top.
struct PlacedGrid {
  std::uint32_t offset = 0;             // of the first one, in the request
  std::uint32_t rows = 0, columns = 0;  // of embeddings
};

// Of the places [first, first + out.size()) of a request with these pictures, ascending, of which none covers another.
void place_rows(std::span<const PlacedGrid> pictures, std::uint32_t first, std::span<RopePosition> out);

}  // namespace quire
