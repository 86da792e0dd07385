#pragma once
// Whether the pool is too full to admit requests (PressureOptions).
//
//   open -> stopped   more than `pressure_high` of the blocks are referenced
//   stopped -> open   fewer than `pressure_low` are
#include <cstdint>

#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"

namespace quire {

// Asked by the waiting loop and by early loads, on the core's thread. Two marks instead of one, so that a pool at the border does not open
// and close admission in every step. While nothing runs and nothing loads it holds nobody back: waiting would free no block.
class Pressure {
 public:
  Pressure(Context& context, const KvCacheManager& kv, const Queues& queues) : context_(context), kv_(kv), queues_(queues) {}

  // Once per step, and after each admission.
  void look();
  [[nodiscard]] bool is_stopped() const { return is_stopped_; }
  // The request may take no blocks now. Not said of who has loaded blocks: what he holds comes free when he has run.
  [[nodiscard]] bool holds_back(const Request& request) const;
  // Asked only where there is a mark (PressureOptions::pressure_preempts).
  [[nodiscard]] bool is_above_high() const;
  // So many blocks must stay free when one is admitted.
  [[nodiscard]] std::uint32_t num_left_free() const;

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, queues, is_stopped] = self;
    form(is_stopped);
  }

 private:
  [[nodiscard]] bool is_idle() const { return queues_.running.empty() && queues_.num_loading == 0; }
  void change(bool is_stopped);

  Context& context_;
  const KvCacheManager& kv_;
  const Queues& queues_;
  bool is_stopped_ = false;
};

}  // namespace quire
