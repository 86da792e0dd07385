#pragma once
// The project's version; the build checks that CMakeLists.txt says the same.
#include <string_view>

namespace quire {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace quire
