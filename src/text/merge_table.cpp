#include "text/merge_table.h"

#include <string>
#include <string_view>

namespace quire {
namespace {

std::uint64_t key_of(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

// Converts a part of a merge to the spelling that the vocabulary uses.
std::string part_bytes(std::string_view part, bool byte_level) {
  return byte_level ? from_byte_alphabet(part).value_or(std::string(part)) : with_plain_spaces(part);
}

struct Parts {
  TokenId left, right, merged;
};

// Splits the line at the first space for which both parts are tokens of the vocabulary. A piece may itself contain spaces.
std::optional<Parts> resolve(std::string_view line, bool byte_level, const Vocabulary& vocabulary) {
  for (std::size_t at = line.find(' ', 1); at != std::string_view::npos && at + 1 < line.size(); at = line.find(' ', at + 1)) {
    const std::string left = part_bytes(line.substr(0, at), byte_level), right = part_bytes(line.substr(at + 1), byte_level);
    const auto left_id = vocabulary.find_piece(left), right_id = vocabulary.find_piece(right);
    if (!left_id || !right_id) continue;
    if (const auto merged = vocabulary.find_piece(left + right)) return Parts{*left_id, *right_id, *merged};
  }
  return std::nullopt;
}

}  // namespace

Result<MergeTable> MergeTable::create(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  const bool byte_level = spec.algorithm == TokenizerSpec::Algorithm::bpe_bytes;
  MergeTable table;
  table.merges_.reserve(spec.merges.size());
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string& line = spec.merges[rank];
    const std::size_t space = line.find(' ', 1);
    if (space == std::string::npos || space + 1 >= line.size())
      return fail(ErrorCode::corrupt, "tokenizer merges", "merge " + std::to_string(rank) + " (\"" + line + "\") does not have two parts",
                  "convert the model again");
    const auto parts = resolve(line, byte_level, vocabulary);
    // If two merges are equal, the first one is used.
    if (parts) table.merges_.try_emplace(key_of(parts->left, parts->right), Merge{static_cast<std::uint32_t>(rank), parts->merged});
  }
  return table;
}

std::optional<Merge> MergeTable::find(TokenId left, TokenId right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace quire
