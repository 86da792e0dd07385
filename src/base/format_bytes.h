#pragma once
// Sizes in bytes as text for people.
#include <cstdint>
#include <string>

namespace quire {

// Returns a text such as "512 B" or "1.50 GiB": in the largest unit that gives at least 1, with two decimals.
std::string format_bytes(std::uint64_t bytes);

}  // namespace quire
