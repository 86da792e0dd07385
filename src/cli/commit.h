#pragma once
// The commit that the program was built from.
#include <string_view>

namespace quire {

// Returns the commit's first twelve digits, followed by "-dirty" if files had been changed since. Empty if the build had no git history.
std::string_view build_commit();

}  // namespace quire
