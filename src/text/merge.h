#pragma once
// Greedy merging of neighbours by rank: the one loop of BPE and of SentencePiece. Nearly linear in the length of the text, O(n log n) at
// worst; up to 24 bytes of memory per byte of text.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "quire/base/ids.h"
#include "text/merge_queue.h"

namespace quire {

// A part of the text being encoded.
struct Symbol {
  TokenId id = -1;           // -1: no token of its own
  std::uint32_t length = 0;  // bytes
};

struct Merge {
  std::uint32_t rank = 0;  // lower goes first; among equals the leftmost
  TokenId id = -1;         // of what comes out
};

// Lives through one call of encode; holds memory from piece to piece.
class Merger {
 public:
  // Begins anew, with room for a text of `num_bytes`.
  void clear(std::size_t num_bytes);
  // The text's next symbol, `length` > 0. All together must stay below 2^32 bytes.
  void append(TokenId id, std::uint32_t length);

  // Merges until no neighbours may be merged. lookup(begin, left, right) tells what two neighbouring symbols give, the first of which is
  // at byte `begin`: std::optional<Merge>.
  template <class Lookup>
  void run(const Lookup& lookup);

  // Calls visit(begin, symbol) from left to right.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::uint32_t at = 0; at < cells_.size(); at += cells_[at].length) visit(at, cells_[at]);
  }

 private:
  static constexpr TokenId kInside = -2;  // the id of a byte at which no symbol begins

  template <class Lookup>
  // Puts what the symbol at byte `left` and the next one may become into the queue.
  void offer(std::uint32_t left, const Lookup& lookup);
  template <class Lookup>
  [[nodiscard]] std::optional<Merge> look_up(std::uint32_t left, const Lookup& lookup) const;
  // Of the symbol at byte `left` and the next one makes one.
  void join(std::uint32_t left, TokenId id);

  // One per byte. A symbol is in the cell of its first byte; the cell of its last byte has its length too, so that the next one finds it.
  std::vector<Symbol> cells_;
  MergeQueue queue_;
};

template <class Lookup>
std::optional<Merge> Merger::look_up(std::uint32_t left, const Lookup& lookup) const {
  const Symbol& a = cells_[left];
  if (a.id == kInside || left + a.length == cells_.size()) return std::nullopt;
  return lookup(left, a, cells_[left + a.length]);
}

template <class Lookup>
void Merger::offer(std::uint32_t left, const Lookup& lookup) {
  if (const auto merge = look_up(left, lookup)) queue_.push({merge->rank, left});
}

template <class Lookup>
void Merger::run(const Lookup& lookup) {
  queue_.start(cells_.size());
  for (std::uint32_t at = 0; at < cells_.size(); at += cells_[at].length) offer(at, lookup);
  while (const auto candidate = queue_.pop()) {
    const std::uint32_t left = candidate->left;
    const auto merge = look_up(left, lookup);
    if (!merge || merge->rank != candidate->rank) continue;  // one of the two has changed since
    join(left, merge->id);
    if (left > 0) offer(left - cells_[left - 1].length, lookup);
    offer(left, lookup);
  }
}

}  // namespace quire
