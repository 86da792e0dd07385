#pragma once
// Prepares images for Gemma 3, as Gemma3ImageProcessor of transformers does (the variant that uses Pillow).
#include "media/image_processor.h"

namespace quire {

extern const ImageProcessor kGemma3Processor;

}  // namespace quire
