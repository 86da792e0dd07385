#pragma once
// Pictures for Qwen2-VL and Qwen2.5-VL, as Qwen2VLImageProcessor of transformers prepares them (the one that uses Pillow): a picture is one
// tile of a size of its own, and an embedding stands for each square of PictureInfo::embed_side pixels.
#include "media/picture_processor.h"

namespace quire {

extern const PictureProcessor kQwenVl;

}  // namespace quire
