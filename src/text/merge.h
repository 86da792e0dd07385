#pragma once
// Merges neighbouring symbols greedily by rank, for BPE and SentencePiece. The cost is nearly linear in the length of the text, O(n log n)
// at worst. Uses up to 24 bytes of memory per byte of text.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "quire/base/ids.h"
#include "text/merge_queue.h"

namespace quire {

// A part of the text being encoded.
struct Symbol {
  TokenId id = -1;           // -1: no token has this text
  std::uint32_t length = 0;  // in bytes
};

struct Merge {
  std::uint32_t rank = 0;  // lower ranks merge first; equal ranks from left to right
  TokenId id = -1;         // the merged token
};

// An object serves one call of encode() and reuses its memory for all pieces.
class Merger {
 public:
  // Removes all symbols and reserves memory for a text of `num_bytes`.
  void clear(std::size_t num_bytes);
  // Appends the next symbol of the text. `length` must be > 0, and the sum of all lengths must be less than 2^32 bytes.
  void append(TokenId id, std::uint32_t length);

  // Merges until no neighbours can be merged. lookup(begin, left, right) returns the merge of two neighbouring symbols as
  // std::optional<Merge>; `begin` is the first byte of the left symbol.
  template <class Lookup>
  void run(const Lookup& lookup);

  // Calls visit(begin, symbol) for each symbol from left to right.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::uint32_t at = 0; at < cells_.size(); at += cells_[at].length) visit(at, cells_[at]);
  }

 private:
  static constexpr TokenId kInside = -2;  // id of a byte at which no symbol begins

  template <class Lookup>
  // Queues the merge of the symbol at byte `left` and its right neighbour, if they can be merged.
  void offer(std::uint32_t left, const Lookup& lookup);
  template <class Lookup>
  [[nodiscard]] std::optional<Merge> look_up(std::uint32_t left, const Lookup& lookup) const;
  // Replaces the symbol at byte `left` and its right neighbour by one symbol.
  void join(std::uint32_t left, TokenId id);

  // One cell per byte. The cell of a symbol's first byte holds the symbol. The cell of its last byte also holds the symbol's length, so
  // that the next symbol can find the previous one.
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
    if (!merge || merge->rank != candidate->rank) continue;  // one of the two symbols has changed since the merge was queued
    join(left, merge->id);
    if (left > 0) offer(left - cells_[left - 1].length, lookup);
    offer(left, lookup);
  }
}

}  // namespace quire
