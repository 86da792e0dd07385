#pragma once
// Pictures for Gemma 3, as Gemma3ImageProcessor of transformers prepares them (the one that uses Pillow).
#include "media/picture_processor.h"

namespace quire {

extern const PictureProcessor kGemma3;

}  // namespace quire
