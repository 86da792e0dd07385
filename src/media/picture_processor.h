#pragma once
// What sets one family of models that see apart where pictures are prepared. A further family is one file beside this one, and a line in
// picture_processor.cpp; what its folder says of pictures is read by src/runtime/model/weights/picture_info.cpp.
#include <cstdint>
#include <string>
#include <string_view>

#include "media/picture.h"
#include "quire/base/error.h"
#include "quire/base/picture.h"

namespace quire {

// Into which tiles a picture is cut; 0 rows: it is taken as a whole.
struct TileGrid {
  std::uint32_t rows = 0, columns = 0;

  [[nodiscard]] std::uint32_t num_tiles() const { return rows * columns + 1; }
  friend bool operator==(const TileGrid&, const TileGrid&) = default;
};

// What a picture of one size becomes.
struct PictureShape {
  TileGrid grid;
  std::uint32_t num_tiles = 1, tile_width = 0, tile_height = 0;  // pixels
  std::uint32_t tile_tokens = 0;                                 // embeddings of each

  [[nodiscard]] std::uint64_t num_tokens() const { return std::uint64_t{num_tiles} * tile_tokens; }
  [[nodiscard]] std::uint64_t num_bytes() const { return std::uint64_t{3} * num_tiles * tile_width * tile_height; }
};

struct PictureProcessor {
  std::string_view name;  // PictureInfo::processor
  std::string_view mark;  // stands for one picture in what the chat template makes
  // Known before the picture is decoded. Errors, without a field: a size that the family takes none of.
  Result<PictureShape> (*shape)(std::uint32_t width, std::uint32_t height, const PictureInfo& info);
  // As its shape says. Any thread.
  PictureTiles (*tiles)(const Picture& picture, const PictureInfo& info);
  // What takes the mark's place: PictureInfo::token once for each embedding, others of the family's around them.
  std::string (*text)(const PictureShape& shape, const PictureInfo& info);
};

// Null: no family has this name.
[[nodiscard]] const PictureProcessor* find_picture_processor(std::string_view name);

}  // namespace quire
