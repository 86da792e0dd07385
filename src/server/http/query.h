#pragma once
// Reads the query of a target ("/pause?mode=keep") field by field and keeps the first error, as ObjectReader does for bodies. If a name
// occurs several times, the last value counts.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Returns a part of a target's path without its escapes ("a%2Fb" is "a/b"). nullopt: it is not percent-encoded.
[[nodiscard]] std::optional<std::string> decoded_path(std::string_view text);

class QueryReader {
 public:
  // `target` may contain any bytes.
  explicit QueryReader(std::string_view target);

  // Names must be literals: the reader keeps views of them.
  [[nodiscard]] std::string text(std::string_view name, std::string_view fallback);
  // Accepts true, 1, yes, on and their opposites, in any case.
  [[nodiscard]] bool boolean(std::string_view name, bool fallback);

  // Accepts digits. The field may occur only once.
  [[nodiscard]] std::optional<std::uint64_t> integer(std::string_view name);

  void reject(std::string_view name, std::string message, std::string remedy);
  // Returns the first error; without one, an error for a field that was never read.
  [[nodiscard]] Result<void> finish();

 private:
  [[nodiscard]] const std::string* find(std::string_view name);

  std::vector<std::pair<std::string, std::string>> fields_;
  std::vector<std::string_view> known_;
  std::optional<Error> error_;
};

}  // namespace quire
