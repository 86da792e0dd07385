#pragma once
// Builds the error for a weight file that contradicts itself.
#include <expected>
#include <string>

#include "quire/base/error.h"

namespace quire {

// Returns an error with code `corrupt` for `field`. Its remedy is to download the file again.
std::unexpected<Error> damaged(std::string field, std::string message);

}  // namespace quire
