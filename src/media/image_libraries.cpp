#include "media/image.h"

namespace quire {

bool has_image_decoders() {
  return true;
}

}  // namespace quire
