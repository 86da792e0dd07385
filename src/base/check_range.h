#pragma once
// Whether an option's number is one that may be, with the same words wherever options are checked.
#include <cstdint>

#include "quire/base/error.h"

namespace quire {

// `field` is the option as the caller knows it; from `low` to `high`, both included. invalid_argument: it is not.
[[nodiscard]] Result<void> check_range(const char* field, std::uint64_t value, std::uint64_t low, std::uint64_t high);

}  // namespace quire
