#pragma once
// The key of a deployment: bytes that all its servers have, and nobody else. By them they know each other's blocks.
#include <cstddef>
#include <string>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// What the file has, but for a line feed at its end. Errors name `field`: it cannot be read, or is too short or long.
Result<std::vector<std::byte>> read_kv_key(const std::string& file, const char* field);

}  // namespace quire
