#pragma once
// Wraps a line as Python's textwrap.wrap does: keeps white space within rows and drops it at breaks.
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

struct WrapOptions {
  bool breaks_long = true;     // break words that are longer than a row
  bool breaks_hyphens = true;  // break words after their hyphens
};

// Splits `line` into rows of at most `width` characters; width > 0. Without `breaks_long`, a word that is too long gets a separate row that
// exceeds `width`.
[[nodiscard]] std::vector<std::string> wrap_words(std::string_view line, std::size_t width, const WrapOptions& options);

}  // namespace quire::jinja
