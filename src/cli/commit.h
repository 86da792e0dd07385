#pragma once
// The commit that the program was built from.
#include <string_view>

namespace quire {

// The first twelve digits, with "-dirty" behind them where files had been changed since; empty where the build had no history.
std::string_view build_commit();

}  // namespace quire
