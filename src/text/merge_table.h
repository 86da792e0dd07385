#pragma once
// Which neighbouring tokens merge, in which order, into what. Immutable after create.
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
  // Reads `spec.merges`, "left right" in rank order. A merge whose tokens the vocabulary lacks can never apply and is left out. Error
  // `corrupt`: a line without two parts.
  static Result<MergeTable> create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  [[nodiscard]] std::optional<Merge> find(TokenId left, TokenId right) const;
  [[nodiscard]] std::size_t size() const { return merges_.size(); }

 private:
  MergeTable() = default;

  boost::unordered_flat_map<std::uint64_t, Merge> merges_;  // by the ids of left and right
};

}  // namespace quire
