#pragma once
// The images of one request in the worker: their positions in the prompt and their embeddings.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/image.h"
#include "quire/base/multimodal.h"
#include "runtime/worker/rope_positions.h"

namespace quire {

// An image, shared by all requests that have it. The thread that leads a step writes the embeddings; they may be read once `is_done` is
// set.
struct EncodedImage {
  std::string identifier;
  std::uint32_t num_tiles = 0, tile_width = 0, tile_height = 0;  // pixels; no tiles: the client gave the embeddings
  std::shared_ptr<const ImageTiles> tiles;                       // released when the image is encoded
  std::vector<float> embeds;                                     // [tile][token][hidden_size]
  std::uint32_t num_tiles_done = 0;
  std::atomic<bool> is_done = false;
};

struct PromptImages {
  // The entry of each image of `pictures` in the core.
  std::vector<MultimodalFeature> features;
  std::vector<std::shared_ptr<EncodedImage>> pictures;
  std::uint32_t width = 0;  // floats per embedding
  // The grid of each image if the model's rotary positions count rows and columns of images; else empty.
  std::vector<ImageGrid> grids;
  bool is_bidirectional = false;  // tokens of an image attend in both directions (VisionConfig::attends_bidirectionally)

  [[nodiscard]] bool are_done() const {
    for (const auto& picture : pictures)
      if (!picture->is_done) return false;
    return true;
  }
};

}  // namespace quire
