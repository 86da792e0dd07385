#include "text/piece_cache.h"

#include <mutex>
#include <utility>

namespace quire {

bool PieceCache::find(std::string_view piece, std::vector<TokenId>& out) {
  if (piece.size() > kMaxPieceBytes) return false;
  const std::size_t before = out.size();
  {
    const std::shared_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    const auto young = young_.find(piece);
    const auto old = young == young_.end() ? old_.find(piece) : old_.end();
    if (young == young_.end() && old == old_.end()) return false;
    const std::vector<TokenId>& tokens = young != young_.end() ? young->second : old->second;
    out.insert(out.end(), tokens.begin(), tokens.end());
    if (young != young_.end()) return true;
  }
  insert(piece, std::span(out).subspan(before));
  return true;
}

void PieceCache::insert(std::string_view piece, std::span<const TokenId> tokens) {
  if (piece.size() > kMaxPieceBytes) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  if (young_.size() >= kMaxEntries / 2) old_ = std::exchange(young_, {});
  young_.try_emplace(std::string(piece), tokens.begin(), tokens.end());
}

std::size_t PieceCache::size() const {
  const std::shared_lock lock(mutex_);
  return young_.size() + old_.size();
}

}  // namespace quire
