#pragma once
// How far something long has come, on one line of a terminal.
#include <string_view>

namespace quire {

// `done`: 0 to 1, which ends the line.
void show_progress(std::string_view what, double done);

}  // namespace quire
