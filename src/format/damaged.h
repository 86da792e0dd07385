#pragma once
// The error of a weight file whose bytes contradict themselves.
#include <expected>
#include <string>

#include "quire/base/error.h"

namespace quire {

// Error `corrupt` of `field`, whose remedy is to download the file again.
std::unexpected<Error> damaged(std::string field, std::string message);

}  // namespace quire
