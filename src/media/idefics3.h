#pragma once
// Pictures for Idefics3 and SmolVLM, as Idefics3ImageProcessor of transformers prepares them (the one that uses Pillow), and the text that
// stands for one in a prompt.
#include <cstdint>
#include <string>
#include <string_view>

#include "media/picture.h"
#include "quire/picture.h"

namespace quire {

// Into which tiles a picture is cut; 0 rows: it is taken as a whole. Behind the cut ones there is always the whole picture.
struct TileGrid {
  std::uint32_t rows = 0, columns = 0;

  [[nodiscard]] std::uint32_t num_tiles() const { return rows * columns + 1; }
  friend bool operator==(const TileGrid&, const TileGrid&) = default;
};

// What a picture of this size becomes: known before it is decoded.
TileGrid idefics3_grid(std::uint32_t width, std::uint32_t height, const PictureInfo& info);
PictureTiles idefics3_tiles(const Picture& picture, const PictureInfo& info);

// What takes the place of one `<image>`. The tokens around those for the embeddings are the model's own.
std::string idefics3_prompt(TileGrid grid, std::uint32_t tile_tokens);
inline constexpr std::string_view kIdefics3Image = "<image>";

}  // namespace quire
