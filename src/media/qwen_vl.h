#pragma once
// Prepares images for Qwen2-VL and Qwen2.5-VL as Qwen2VLImageProcessor of transformers does (the variant that uses Pillow). An image
// becomes one tile whose size depends on the image. Each square of ImageInfo::embed_side pixels gives one embedding.
#include "media/image_processor.h"

namespace quire {

extern const ImageProcessor kQwenVlProcessor;

}  // namespace quire
