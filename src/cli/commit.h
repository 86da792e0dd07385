#pragma once
// The commit from which the program was built.
#include <string_view>

namespace quire {

// Returns the first twelve digits of the commit, followed by "-dirty" if files had been changed since the commit. Empty if the build had no
// git history.
std::string_view build_commit();

}  // namespace quire
