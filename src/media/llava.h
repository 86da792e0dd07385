#pragma once
// Pictures for LLaVA, as CLIPImageProcessor and SiglipImageProcessor of transformers prepare them (those that use Pillow).
#include "media/picture_processor.h"
#include "quire/base/picture.h"

namespace quire {

// One tile: the middle of the picture, or all of it.
PictureTiles llava_tiles(const Picture& picture, const PictureInfo& info);

extern const PictureProcessor kLlava;

}  // namespace quire
