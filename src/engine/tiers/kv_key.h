#pragma once
// The secret key that all servers of a deployment share. It authenticates the blocks that the servers exchange.
#include <cstddef>
#include <string>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Returns the bytes of the file without a line feed at the end. Errors name `field`: the file cannot be read, or the key has a wrong
// length.
Result<std::vector<std::byte>> read_kv_key(const std::string& file, const char* field);

}  // namespace quire
