#pragma once
// The images of one request as the worker holds them: their positions in the prompt, and their embeddings.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/image.h"
#include "quire/base/multimodal.h"
#include "runtime/worker/rope_positions.h"

namespace quire {

// Shared by all requests that show the image. The thread that leads a step writes the embeddings; they may be read once `is_done` is set.
struct EncodedImage {
  std::string identifier;
  std::uint32_t num_tiles = 0, tile_width = 0, tile_height = 0;  // pixels; no tiles: the client gave the embeddings
  std::shared_ptr<const ImageTiles> tiles;                       // released when the image is encoded
  std::vector<float> embeds;                                     // [tile][token][hidden_size]
  std::uint32_t num_tiles_done = 0;
  std::atomic<bool> is_done = false;
};

struct PromptImages {
  // `features` is what the core knows of each image in `pictures`.
  std::vector<MultimodalFeature> features;
  std::vector<std::shared_ptr<EncodedImage>> pictures;
  std::uint32_t width = 0;  // floats per embedding
  // The grid of each image if the model counts rows and columns of images; else empty.
  std::vector<ImageGrid> grids;
  bool is_bidirectional = false;  // each image to all of itself (VisionConfig::attends_bidirectionally)

  [[nodiscard]] bool are_done() const {
    for (const auto& picture : pictures)
      if (!picture->is_done) return false;
    return true;
  }
};

}  // namespace quire
