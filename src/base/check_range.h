#pragma once
// Checks the range of a numeric option, with the same error text for all options.
#include <cstdint>

#include "quire/base/error.h"

namespace quire {

// Returns `invalid_argument` unless `value` is in [low, high]. `field` is the name of the option in the error.
[[nodiscard]] Result<void> check_range(const char* field, std::uint64_t value, std::uint64_t low, std::uint64_t high);

}  // namespace quire
