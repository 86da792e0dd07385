#include "media/picture.h"

namespace quire {

bool has_pictures() {
  return true;
}

}  // namespace quire
