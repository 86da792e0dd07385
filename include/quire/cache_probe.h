#pragma once
// How many tokens of a prompt the prefix cache and the tiers hold now: the results of Core::probe, Connector::peek and Engine::probe. These
// functions change nothing. Counts are tokens.
#include <cstdint>
#include <vector>

namespace quire {

// The tokens that one tier would supply. They come after the tokens of the prefix cache and of the tiers before it.
struct TierMatch {
  std::uint32_t tier = 0;  // `Transfer::tier`
  std::uint32_t num_tokens = 0;
  bool load_async = false;  // `ExternalMatch::load_async`

  friend bool operator==(const TierMatch&, const TierMatch&) = default;
};

// How many tokens of a request's prompt would be found if the request were looked up now.
struct CacheProbe {
  std::uint32_t num_tokens = 0;        // prompt length
  std::uint32_t num_local_tokens = 0;  // found in the prefix cache
  std::vector<TierMatch> external;     // found by the connector after the local tokens, tier by tier, in token order
  bool is_external_known = true;       // false: there is a connector, but it cannot predict its match

  [[nodiscard]] std::uint32_t num_external_tokens() const {
    std::uint32_t sum = 0;
    for (const TierMatch& match : external) sum += match.num_tokens;
    return sum;
  }
  [[nodiscard]] std::uint32_t num_missed_tokens() const { return num_tokens - num_local_tokens - num_external_tokens(); }
};

}  // namespace quire
