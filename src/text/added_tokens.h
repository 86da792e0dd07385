#pragma once
// Finds the text of added tokens in a text, before any other encoding step. Objects are immutable after construction.
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/model_info.h"
#include "text/vocabulary.h"

namespace quire {

class AddedTokens {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    TokenId token = -1;
  };

  // Searches as Hugging Face tokenizers do (AddedVocabulary): most tokens are found in the raw text, as the file spells them. A token that
  // is `normalized` is found in its normalized form, in the normalized text between the other matches. The constructor calls `normalize`
  // once for each of these tokens.
  using Normalize = std::function<std::string(std::string_view)>;
  AddedTokens(const TokenizerSpec& spec, const Vocabulary& vocabulary, const Normalize& normalize);

  enum class TextForm : std::uint8_t { as_written, normalized };

  // Returns the leftmost token in `text` at or after `from`. If several tokens begin there, returns the longest. User-defined tokens always
  // match. Control and unknown tokens match only with `parse_special`. The match includes the white space that the token strips, but none
  // before `from`. `text` must be valid UTF-8.
  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from, bool parse_special,
                                          TextForm form = TextForm::as_written) const;

 private:
  // A token to find in texts. `special`: a control or unknown token, which matches only with `parse_special`.
  struct Entry {
    std::string_view text;
    TokenId token;
    bool special;
    bool strip_left = false, strip_right = false, single_word = false;
  };

  struct Table {
    std::vector<Entry> entries;                   // sorted by text
    std::array<std::uint32_t, 257> first_byte{};  // entries[first_byte[b] .. first_byte[b + 1]) begin with byte b

    void sort();
    // Returns the longest entry that begins at text[at], or null if there is no such entry.
    [[nodiscard]] const Entry* longest_at(std::string_view text, std::size_t at, bool parse_special) const;
  };

  std::deque<std::string> texts_;  // storage for Entry::text
  Table as_written_, normalized_;
};

}  // namespace quire
