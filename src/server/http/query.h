#pragma once
// Reads the query of a target ("/pause?mode=keep") field by field and keeps the first thing that is wrong with it, as ObjectReader does for
// bodies. Of equal names the last counts.
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/error.h"

namespace quire {

class QueryReader {
 public:
  // `target` may be any bytes.
  explicit QueryReader(std::string_view target);

  // Names are literals.
  [[nodiscard]] std::string text(std::string_view name, std::string_view fallback);
  // true, 1, yes, on and their opposites, in any case.
  [[nodiscard]] bool boolean(std::string_view name, bool fallback);

  void reject(std::string_view name, std::string message, std::string remedy);
  // The first error; last of all a field that nobody asked for.
  [[nodiscard]] Result<void> finish();

 private:
  [[nodiscard]] const std::string* find(std::string_view name);

  std::vector<std::pair<std::string, std::string>> fields_;
  std::vector<std::string_view> known_;
  std::optional<Error> error_;
};

}  // namespace quire
