#pragma once
// The version of quire. The build checks that CMakeLists.txt has the same version.
#include <string_view>

namespace quire {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace quire
