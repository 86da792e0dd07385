#include "format/damaged.h"

#include <utility>

namespace quire {

std::unexpected<Error> damaged(std::string field, std::string message) {
  return fail(ErrorCode::corrupt, std::move(field), std::move(message), "the file is damaged or incomplete: download it again");
}

}  // namespace quire
