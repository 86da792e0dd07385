#pragma once
// The optional libraries of this build.
#include <span>
#include <string_view>

namespace quire {

struct BuildOption {
  std::string_view library;  // "hiredis"
  std::string_view purpose;  // what a build without the library refuses
  std::string_view package;  // Debian packages that a build needs; empty: ./dev builds the library
  bool is_included = false;
};

// Returns all optional libraries.
std::span<const BuildOption> build_options();

}  // namespace quire
