#pragma once
// Shows the progress of a long operation on one line of a terminal.
#include <string_view>

namespace quire {

// Draws the bar at `done`, from 0 to 1. At 1 it also ends the line.
void show_progress(std::string_view what, double done);

}  // namespace quire
