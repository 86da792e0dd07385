#pragma once
// Prepares images for LLaVA, as CLIPImageProcessor and SiglipImageProcessor of transformers do (the variants that use Pillow).
#include "media/image_processor.h"
#include "quire/base/image.h"

namespace quire {

// Returns one tile: the middle of the image, or all of it.
ImageTiles llava_tiles(const RgbImage& image, const ImageInfo& info);

extern const ImageProcessor kLlavaProcessor;

}  // namespace quire
