#pragma once
// Caches the token ids of short pieces that were seen recently. The size is bounded. Thread-safe. find() and insert() never block, because
// the thread that holds the lock may have a low priority and may be preempted.
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

// Entries are in two generations. When the young generation is full, the old one is dropped and the young one becomes the old one. find()
// copies an entry from the old to the young generation. Pieces that are seen only once therefore do not evict pieces that recur.
class PieceCache {
 public:
  static constexpr std::size_t kMaxEntries = 16384;
  static constexpr std::size_t kMaxPieceBytes = 48;

  // If the ids of `piece` are cached, appends them and returns true.
  bool find(std::string_view piece, std::vector<TokenId>& out);
  void insert(std::string_view piece, std::span<const TokenId> tokens);
  [[nodiscard]] std::size_t size() const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  using Entries = boost::unordered_flat_map<std::string, std::vector<TokenId>, Hash, std::equal_to<>>;

  // find() and insert() only try to lock the mutex. If this fails, the thread encodes the piece without the cache.
  mutable std::shared_mutex mutex_;
  Entries young_, old_;
};

}  // namespace quire
