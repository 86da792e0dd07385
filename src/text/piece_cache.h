#pragma once
// Caches the token ids of short pieces that were seen recently. The size is bounded. Any number of threads may call it at the same time.
// find() and insert() never block, because a thread that holds the lock may have low priority and no core.
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

// Entries are in two generations. When the young one is full, the old one is dropped and the young one becomes old. find() copies an entry
// from the old to the young generation. Texts that are seen only once therefore cannot evict texts that recur.
class PieceCache {
 public:
  static constexpr std::size_t kMaxEntries = 16384;
  static constexpr std::size_t kMaxPieceBytes = 48;

  // Appends the ids of `piece` and returns true if they are cached.
  bool find(std::string_view piece, std::vector<TokenId>& out);
  void insert(std::string_view piece, std::span<const TokenId> tokens);
  [[nodiscard]] std::size_t size() const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  using Entries = boost::unordered_flat_map<std::string, std::vector<TokenId>, Hash, std::equal_to<>>;

  // find() and insert() only try to lock it. A thread that fails encodes the piece again.
  mutable std::shared_mutex mutex_;
  Entries young_, old_;
};

}  // namespace quire
