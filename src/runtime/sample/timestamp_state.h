#pragma once
// What TimestampRules need of the outputs of a request, and what they do to the next row of logits.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/sampling.h"

namespace quire {

class TimestampState {
 public:
  // Of a request that has these outputs.
  void begin(const TimestampRules& rules, std::span<const TokenId> outputs);
  void add(const TimestampRules& rules, TokenId output);
  // What the next output is one of, whatever else is masked; null: the text has begun.
  [[nodiscard]] const std::vector<TokenId>* choice(const TimestampRules& rules) const {
    return num_before_ < rules.begins.size() ? &rules.begins[num_before_] : nullptr;
  }
  // In the text: masks what may not come next. `logits` may be changed in no other way afterwards.
  void apply(const TimestampRules& rules, std::span<float> logits) const;

 private:
  std::size_t num_before_ = 0;     // outputs that are TimestampRules::begins
  std::uint32_t num_outputs_ = 0;  // behind them
  bool last_is_time_ = false, second_last_is_time_ = false;
  TokenId last_time_ = -1;  // none yet
};

}  // namespace quire
