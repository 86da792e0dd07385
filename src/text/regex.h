#pragma once
// A compiled regular expression over UTF-8 (Oniguruma). Immutable after create(), so any thread may call find().
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

  // Compiles `pattern`. Error `unsupported`: Oniguruma cannot compile the pattern.
  static Result<Regex> create(std::string_view pattern);

  // Returns the first match that begins at or after `from`. Look-around assertions see only `text`, which must be valid UTF-8. Error
  // `invalid_argument`: the search exceeds its limit of 64 backtracking steps per byte (at least 1,000,000 steps). Because of the limit, a
  // malicious expression cannot block the program.
  [[nodiscard]] Result<std::optional<Match>> find(std::string_view text, std::size_t from) const;

 private:
  struct Compiled;
  explicit Regex(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace quire
