#pragma once
// Describes how one family of models prepares images. A new family needs one file in this folder and one line in image_processor.cpp.
// src/runtime/model/weights/image_info.cpp reads the image properties from the model's folder.
#include <cstdint>
#include <string>
#include <string_view>

#include "media/image.h"
#include "quire/base/error.h"
#include "quire/base/image.h"

namespace quire {

// The grid of tiles into which an image is split. 0 rows: the image is not split.
struct TileGrid {
  std::uint32_t rows = 0, columns = 0;

  [[nodiscard]] std::uint32_t num_tiles() const { return rows * columns + 1; }
  friend bool operator==(const TileGrid&, const TileGrid&) = default;
};

// The tiles and tokens of an image, which depend only on its size.
struct ImageShape {
  TileGrid grid;
  std::uint32_t num_tiles = 1, tile_width = 0, tile_height = 0;  // pixels
  std::uint32_t tile_tokens = 0;                                 // embeddings per tile

  [[nodiscard]] std::uint64_t num_tokens() const { return std::uint64_t{num_tiles} * tile_tokens; }
  [[nodiscard]] std::uint64_t num_bytes() const { return std::uint64_t{3} * num_tiles * tile_width * tile_height; }
};

struct ImageProcessor {
  std::string_view name;               // ImageInfo::processor
  std::string_view image_placeholder;  // represents one image in the text that the chat template returns
  // Returns the tiles and tokens of an image of this size. Called before the image is decoded. Errors, without a field: the family does not
  // accept this size.
  Result<ImageShape> (*shape)(std::uint32_t width, std::uint32_t height, const ImageInfo& info);
  // Returns the tiles that `shape` describes. Called on any thread.
  ImageTiles (*tiles)(const RgbImage& image, const ImageInfo& info);
  // Returns the text that replaces `image_placeholder`: the placeholder once per embedding, with the family's other tokens around it.
  std::string (*text)(const ImageShape& shape, const ImageInfo& info);
};

// Returns null if no family has this name.
[[nodiscard]] const ImageProcessor* find_image_processor(std::string_view name);

}  // namespace quire
