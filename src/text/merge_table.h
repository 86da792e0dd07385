#pragma once
// Maps two neighbouring tokens to the rank and the result of their merge. Tables are immutable after create().
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "quire/base/error.h"
#include "quire/base/model_info.h"
#include "text/merge.h"
#include "text/vocabulary.h"

namespace quire {

class MergeTable {
 public:
  // Reads `spec.merges`, a list of "left right" in rank order. Skips merges whose tokens are not in the vocabulary, because they can never
  // apply. Error `corrupt`: a line does not have two parts.
  static Result<MergeTable> create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  [[nodiscard]] std::optional<Merge> find(TokenId left, TokenId right) const;
  [[nodiscard]] std::size_t size() const { return merges_.size(); }

 private:
  MergeTable() = default;

  boost::unordered_flat_map<std::uint64_t, Merge> merges_;  // keys are the ids of left and right
};

}  // namespace quire
