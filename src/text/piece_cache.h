#pragma once
// Ids of short pieces seen before. Bounded: when full, it takes no more. Any thread.
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quire/ids.h"

namespace quire {

class PieceCache {
 public:
  static constexpr std::size_t kMaxEntries = 16384;
  static constexpr std::size_t kMaxPieceBytes = 48;

  // Appends the ids of `piece`, if they are known.
  bool find(std::string_view piece, std::vector<TokenId>& out) const {
    if (piece.size() > kMaxPieceBytes) return false;
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(piece);
    if (found == entries_.end()) return false;
    out.insert(out.end(), found->second.begin(), found->second.end());
    return true;
  }

  void insert(std::string_view piece, std::span<const TokenId> tokens) {
    if (piece.size() > kMaxPieceBytes) return;
    const std::unique_lock lock(mutex_);
    if (entries_.size() < kMaxEntries) entries_.try_emplace(std::string(piece), tokens.begin(), tokens.end());
  }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, std::vector<TokenId>, Hash, std::equal_to<>> entries_;
};

}  // namespace quire
