#pragma once
// A compiled regular expression over UTF-8 (Oniguruma). Immutable after create: find may be called from any thread.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

class Regex {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  // Error `unsupported`: the engine cannot read the expression.
  static Result<Regex> create(std::string_view pattern);

  // The first match that begins at or after `from`; look-ahead and look-behind see nothing but `text` (valid UTF-8). Error
  // `invalid_argument`: the search needs more than about 64 steps of backtracking per byte. So a hostile expression cannot stop the
  // program, nor does it cut the text in the wrong places.
  [[nodiscard]] Result<std::optional<Match>> find(std::string_view text, std::size_t from) const;

 private:
  struct Compiled;
  explicit Regex(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace quire
