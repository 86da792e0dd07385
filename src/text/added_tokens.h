#pragma once
// Finds tokens that are written out in a text before anything else looks at it. Immutable after create.
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "quire/ids.h"
#include "text/vocabulary.h"

namespace quire {

class AddedTokens {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    TokenId token = -1;
  };

  // `vocabulary` must outlive this.
  explicit AddedTokens(const Vocabulary& vocabulary);

  // The leftmost token in `text` at or after `from`, the longest where several begin. User-defined tokens always count, control and unknown
  // ones with `parse_special`.
  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from, bool parse_special) const;

 private:
  struct Entry {
    std::string_view text;
    TokenId token;
    bool special;
  };

  [[nodiscard]] std::optional<Match> match_at(std::string_view text, std::size_t at, bool parse_special) const;

  std::vector<Entry> entries_;                   // sorted by text
  std::array<std::uint32_t, 257> first_byte_{};  // entries_[first_byte_[b] .. first_byte_[b + 1]) begin with byte b
};

}  // namespace quire
