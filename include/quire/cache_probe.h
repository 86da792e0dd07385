#pragma once
// What a request would find in the cache and behind it, without asking in earnest (Core::probe, Connector::peek, Engine::probe). Values;
// counts are tokens.
#include <cstdint>
#include <vector>

namespace quire {

// What a tier would give a request, behind all that comes before it.
struct TierMatch {
  std::uint32_t tier = 0;  // Transfer::tier
  std::uint32_t num_tokens = 0;
  bool load_async = false;  // ExternalMatch::load_async

  friend bool operator==(const TierMatch&, const TierMatch&) = default;
};

// What a request would find if it were looked up now.
struct CacheProbe {
  std::uint32_t num_tokens = 0;        // of its prompt
  std::uint32_t num_local_tokens = 0;  // in the prefix cache
  std::vector<TierMatch> external;     // what the connector has behind them, tier by tier, in the order of the tokens
  bool is_external_known = true;       // false: there is a connector, and it cannot say

  [[nodiscard]] std::uint32_t num_external_tokens() const {
    std::uint32_t sum = 0;
    for (const TierMatch& match : external) sum += match.num_tokens;
    return sum;
  }
  [[nodiscard]] std::uint32_t num_missed_tokens() const { return num_tokens - num_local_tokens - num_external_tokens(); }
};

}  // namespace quire
