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
  // Initializes the state for a request that already has these outputs.
  void begin(const TimestampRules& rules, std::span<const TokenId> outputs);
  void add(const TimestampRules& rules, TokenId output);
  // Returns the tokens from which the next output is chosen, regardless of other masks; null after all of TimestampRules::begins were used.
  [[nodiscard]] const std::vector<TokenId>* choice(const TimestampRules& rules) const {
    return num_forced_ < rules.begins.size() ? &rules.begins[num_forced_] : nullptr;
  }
  // Masks the tokens that the rules forbid next. Used when choice() is null. Must be the last change of `logits`.
  void apply(const TimestampRules& rules, std::span<float> logits) const;

 private:
  std::size_t num_forced_ = 0;     // outputs chosen from TimestampRules::begins
  std::uint32_t num_outputs_ = 0;  // outputs after the forced ones
  bool last_is_timestamp_ = false, second_last_is_timestamp_ = false;
  TokenId last_timestamp_ = -1;  // -1: none yet
};

}  // namespace quire
