#include "base/format_bytes.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace quire {

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t name = 0;
  while (value >= 1024.0 && name + 1 < kNames.size()) {
    value /= 1024.0;
    ++name;
  }
  return name == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kNames[name]);
}

}  // namespace quire
