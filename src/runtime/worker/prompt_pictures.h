#pragma once
// The pictures of one request as the worker holds them: where they stand in its prompt, and what the encoder has made of them.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/multimodal.h"
#include "quire/base/picture.h"
#include "runtime/worker/rope_positions.h"

namespace quire {

// Shared by all requests that show it. Its embeddings are written by the thread that leads a step, and read when they are there.
struct EncodedPicture {
  std::string identifier;
  std::uint32_t num_tiles = 0, tile_width = 0, tile_height = 0;  // pixels; no tiles: its embeddings were given
  std::shared_ptr<const PictureTiles> tiles;                     // until it is done
  std::vector<float> embeds;                                     // [tile][token][hidden_size]
  std::uint32_t num_tiles_done = 0;
  std::atomic<bool> is_done = false;
};

struct PromptPictures {
  // What the core is told, and the picture of each.
  std::vector<MultimodalFeature> features;
  std::vector<std::shared_ptr<EncodedPicture>> pictures;
  std::uint32_t width = 0;  // floats of an embedding
  // Of each, where the model counts rows and columns of pictures; else empty.
  std::vector<PlacedGrid> grids;
  bool attend_whole = false;  // each to all of itself (VisionConfig::attends_whole)

  [[nodiscard]] bool are_done() const {
    for (const auto& picture : pictures)
      if (!picture->is_done) return false;
    return true;
  }
};

}  // namespace quire
