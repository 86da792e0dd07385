#pragma once
// Pictures for Idefics3 and SmolVLM, as Idefics3ImageProcessor of transformers prepares them (the one that uses Pillow), and the text that
// stands for one in a prompt.
#include <cstdint>
#include <string>

#include "media/picture_processor.h"
#include "quire/base/picture.h"

namespace quire {

// Behind the tiles there is always the whole picture.
TileGrid idefics3_grid(std::uint32_t width, std::uint32_t height, const PictureInfo& info);
PictureTiles idefics3_tiles(const Picture& picture, const PictureInfo& info);

// What takes the place of one `<image>`. The tokens around those for the embeddings are the model's own.
std::string idefics3_prompt(TileGrid grid, std::uint32_t tile_tokens);

extern const PictureProcessor kIdefics3;

}  // namespace quire
