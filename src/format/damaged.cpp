#include "format/damaged.h"

#include <utility>

namespace quire {

std::unexpected<Error> damaged(std::string field, std::string message) {
  return fail(ErrorCode::corrupt, std::move(field), std::move(message), "download the file again; it is corrupted or incomplete");
}

}  // namespace quire
