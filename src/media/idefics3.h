#pragma once
// Prepares images for Idefics3 and SmolVLM as Idefics3ImageProcessor of transformers does (the variant that uses Pillow), and creates an
// image's prompt text.
#include <cstdint>
#include <string>

#include "media/image_processor.h"
#include "quire/base/image.h"

namespace quire {

// Returns the grid of tiles. After the tiles of the grid there is always one more tile with the whole image.
TileGrid idefics3_grid(std::uint32_t width, std::uint32_t height, const ImageInfo& info);
ImageTiles idefics3_tiles(const RgbImage& image, const ImageInfo& info);

// Returns the text that replaces one `<image>`: the embedding tokens, and the model's other tokens around them.
std::string idefics3_prompt(TileGrid grid, std::uint32_t tile_tokens);

extern const ImageProcessor kIdefics3Processor;

}  // namespace quire
