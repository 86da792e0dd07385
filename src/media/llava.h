#pragma once
// Prepares images for LLaVA, as CLIPImageProcessor and SiglipImageProcessor of transformers do (the variants that use Pillow).
#include "media/image_processor.h"
#include "quire/base/image.h"

namespace quire {

// Returns one tile: the center of the image, or the whole image scaled to the tile.
ImageTiles llava_tiles(const RgbImage& image, const ImageInfo& info);

extern const ImageProcessor kLlavaProcessor;

}  // namespace quire
