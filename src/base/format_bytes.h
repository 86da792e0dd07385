#pragma once
// Formats sizes in bytes for people.
#include <cstdint>
#include <string>

namespace quire {

// Returns a text such as "512 B" or "1.50 GiB", in the largest unit in which the value is at least 1. Units above bytes have two decimals.
std::string format_bytes(std::uint64_t bytes);

}  // namespace quire
