#include "cli/progress_bar.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace quire {

void show_progress(std::string_view what, double done) {
  constexpr int kWidth = 40;
  const int filled = static_cast<int>(done * kWidth);
  fmt::print(stderr, "\r{} [{}{}] {:3.0f}%{}", what, std::string(static_cast<std::size_t>(filled), '#'),
             std::string(static_cast<std::size_t>(kWidth - filled), ' '), done * 100, done >= 1.0 ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace quire
