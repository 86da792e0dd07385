#pragma once
// Tracks the outputs of a request for TimestampRules, and applies the rules to the next row of logits.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/sampling.h"

namespace quire {

class TimestampState {
 public:
  // Starts a request that already has these outputs.
  void begin(const TimestampRules& rules, std::span<const TokenId> outputs);
  void add(const TimestampRules& rules, TokenId output);
  // Returns the tokens that the next output is chosen from, whatever else is masked, or null if the text has begun.
  [[nodiscard]] const std::vector<TokenId>* choice(const TimestampRules& rules) const {
    return num_forced_ < rules.begins.size() ? &rules.begins[num_forced_] : nullptr;
  }
  // Masks the tokens that may not come next, once the text has begun. It must be the last change of `logits`.
  void apply(const TimestampRules& rules, std::span<float> logits) const;

 private:
  std::size_t num_forced_ = 0;     // outputs chosen from TimestampRules::begins
  std::uint32_t num_outputs_ = 0;  // outputs after these
  bool last_is_timestamp_ = false, second_last_is_timestamp_ = false;
  TokenId last_timestamp_ = -1;  // -1: none yet
};

}  // namespace quire
