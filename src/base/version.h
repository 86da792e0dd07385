#pragma once

namespace quire {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace quire
