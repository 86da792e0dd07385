#pragma once
// Reads the query of a request target ("/pause?mode=keep") field by field. Stores the first error, as ObjectReader does for bodies. If a
// name occurs several times, the last value is used.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Decodes the percent-encoding of a part of a target's path ("a%2Fb" becomes "a/b"). Returns nullopt if the encoding is invalid.
[[nodiscard]] std::optional<std::string> decoded_path(std::string_view text);

class QueryReader {
 public:
  // Parses the query of `target`, which may contain any bytes.
  explicit QueryReader(std::string_view target);

  // Returns the value of a field, or `fallback` if the field is missing. Names must be literals, because the reader stores views of them.
  [[nodiscard]] std::string text(std::string_view name, std::string_view fallback);
  // Accepts true, 1, yes, on and false, 0, no, off, in upper or lower case.
  [[nodiscard]] bool boolean(std::string_view name, bool fallback);

  // Accepts only digits. It is an error if the field occurs several times.
  [[nodiscard]] std::optional<std::uint64_t> integer(std::string_view name);

  void reject(std::string_view name, std::string message, std::string remedy);
  // Returns the first error or, without one, an error for the first field that was not read.
  [[nodiscard]] Result<void> finish();

 private:
  [[nodiscard]] const std::string* find(std::string_view name);

  std::vector<std::pair<std::string, std::string>> fields_;
  std::vector<std::string_view> known_;
  std::optional<Error> error_;
};

}  // namespace quire
