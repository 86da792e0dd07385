#pragma once
// Ids of short pieces seen lately. Bounded. Any thread, several at once; none waits
// for another, which may be one of low priority that has lost its core.
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <functional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

// Two generations: when the younger one is full, the older one goes, but for what was asked for in between. Texts that were once seen,
// however many and whoever sends them, do not keep out those that come again.
class PieceCache {
 public:
  static constexpr std::size_t kMaxEntries = 16384;
  static constexpr std::size_t kMaxPieceBytes = 48;

  // Appends the ids of `piece`, if they are known.
  bool find(std::string_view piece, std::vector<TokenId>& out);
  void insert(std::string_view piece, std::span<const TokenId> tokens);
  [[nodiscard]] std::size_t size() const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  using Entries = boost::unordered_flat_map<std::string, std::vector<TokenId>, Hash, std::equal_to<>>;

  // find() and insert() only try it: who does not get it encodes the piece anew.
  mutable std::shared_mutex mutex_;
  Entries young_, old_;
};

}  // namespace quire
