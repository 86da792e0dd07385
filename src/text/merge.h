#pragma once
// Greedy merging of neighbours by rank: the one loop of BPE and of SentencePiece. O(n log n) in the number of symbols.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "quire/ids.h"

namespace quire {

// A part of the text being encoded. `length` 0: merged into its left neighbour.
struct Symbol {
  std::uint32_t begin = 0;
  std::uint32_t length = 0;
  std::int32_t prev = -1, next = -1;  // indices; -1: none
  TokenId id = -1;                    // -1: no token of its own
};

struct Merge {
  std::uint32_t rank = 0;  // lower goes first; among equals the leftmost
  TokenId id = -1;         // of what comes out
};

// Lives through one call of encode; holds memory from piece to piece.
class Merger {
 public:
  std::vector<Symbol> symbols;

  // Links `symbols` in order and merges until no neighbours may be merged. Survivors are those with length > 0.
  // lookup(left, right) tells what two neighbouring symbols give: std::optional<Merge>.
  template <class Lookup>
  void run(const Lookup& lookup);

 private:
  struct Candidate {
    std::uint32_t rank;
    std::int32_t left;
    std::uint32_t length;  // of both together: it differs once either has changed
    TokenId id;
    // For a heap with the best on top.
    friend bool operator<(const Candidate& a, const Candidate& b) { return a.rank != b.rank ? a.rank > b.rank : a.left > b.left; }
  };

  template <class Lookup>
  void offer(std::int32_t left, const Lookup& lookup);
  void link();
  bool next_candidate(Candidate& out);
  void join(const Candidate& candidate);

  std::vector<Candidate> heap_;
};

template <class Lookup>
void Merger::offer(std::int32_t left, const Lookup& lookup) {
  if (left < 0) return;
  const Symbol& a = symbols[static_cast<std::size_t>(left)];
  if (a.next < 0) return;
  const Symbol& b = symbols[static_cast<std::size_t>(a.next)];
  const std::optional<Merge> merge = lookup(a, b);
  if (!merge) return;
  heap_.push_back({merge->rank, left, a.length + b.length, merge->id});
  std::push_heap(heap_.begin(), heap_.end());
}

template <class Lookup>
void Merger::run(const Lookup& lookup) {
  link();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) offer(static_cast<std::int32_t>(i), lookup);
  Candidate best;
  while (next_candidate(best)) {
    join(best);
    offer(symbols[static_cast<std::size_t>(best.left)].prev, lookup);
    offer(best.left, lookup);
  }
}

}  // namespace quire
