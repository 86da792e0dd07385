#pragma once
// Which neighbouring tokens merge, in which order, into what. Immutable after create.
#include <cstdint>
#include <optional>
#include <vector>

#include "quire/error.h"
#include "quire/model_info.h"
#include "text/merge.h"
#include "text/vocabulary.h"

namespace quire {

class MergeTable {
 public:
  // Reads `spec.merges`, "left right" in rank order. A merge whose tokens the vocabulary lacks can never apply and is left out. Error
  // `corrupt`: a line without two parts.
  static Result<MergeTable> create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  [[nodiscard]] std::optional<Merge> find(TokenId left, TokenId right) const;
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Entry {
    std::uint64_t key;
    Merge merge;
  };

  explicit MergeTable(std::size_t count);
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const;
  void insert(TokenId left, TokenId right, Merge merge);

  std::vector<Entry> entries_;  // open addressing, at most two thirds full
  std::size_t size_ = 0;
};

}  // namespace quire
