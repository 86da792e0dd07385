#pragma once
// Blocks for requests that wait: for one that is to be admitted or waits for its load, and for one whose own lie outside of the pool.
// Others give way where they may (giving_way.h).
#include <cstdint>

#include "core/schedule/loops/giving_way.h"
#include "core/schedule/loops/pressure.h"
#include "core/schedule/moves/look_up.h"
#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/request.h"

namespace quire {

class AdmissionRoom {
 public:
  AdmissionRoom(const Foundation& base, GivingWay& giving_way, const Pressure& pressure, Swap& swap)
      : context_(base.context),
        kv_(base.kv),
        requests_(base.requests),
        queues_(base.queues),
        giving_way_(giving_way),
        pressure_(pressure),
        swap_(swap) {}

  // The number of blocks that lack, whoever gave way; 0: it has them.
  std::uint32_t take(Request& request, const Computed& computed, std::int32_t num_new_tokens, const EncoderGrant& encoder);
  enum class Return : std::uint8_t {
    begun,    // it has blocks, and waits for what was in them
    blocked,  // not now
    dropped,  // there is no room for what it had and all that it lacks at a time: it is computed again
  };
  // Of one that was swapped out.
  Return bring_back(Request& request);
  void tell_blocked(const Request& request, EventCause cause, std::uint32_t num_missing);

 private:
  [[nodiscard]] std::uint32_t num_reserved() const;  // DecisionRules::loads_leave_room
  [[nodiscard]] bool needs_lookahead(const Request& request, const Computed& computed) const;
  std::uint32_t try_take(Request& request, const Computed& computed, std::int32_t num_new_tokens, const EncoderGrant& encoder);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  Queues& queues_;
  GivingWay& giving_way_;
  const Pressure& pressure_;
  Swap& swap_;
};

}  // namespace quire
