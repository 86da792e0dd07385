#pragma once
// The key of a deployment: bytes that all its servers have and that are secret from others. It authenticates the blocks that they exchange.
#include <cstddef>
#include <string>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Returns the bytes of the file without a final line feed. Errors name `field`: the file cannot be read, or the key's length is wrong.
Result<std::vector<std::byte>> read_kv_key(const std::string& file, const char* field);

}  // namespace quire
