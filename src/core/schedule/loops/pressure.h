#pragma once
// Decides whether the pool is too full to admit requests (PressureOptions).
//
//   open -> stopped   more than `pressure_high` of the blocks are referenced
//   stopped -> open   fewer than `pressure_low` of the blocks are referenced
#include <cstdint>

#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"

namespace quire {

// Called by the waiting loop and its AdmissionAllocator, by early loads and by BlockRelief, on the core's thread. There are two thresholds,
// so that admission does not open and close in every step. While no request runs or loads, no request is stopped: waiting would not free
// blocks.
class Pressure {
 public:
  Pressure(Context& context, const KvCacheManager& kv, const Queues& queues) : context_(context), kv_(kv), queues_(queues) {}

  // Updates the state. Called once per step and after each admission.
  void look();
  [[nodiscard]] bool is_stopped() const { return is_stopped_; }
  // Returns whether the request may not take blocks now. Requests that hold loaded blocks are exempt: running them frees those blocks.
  [[nodiscard]] bool holds_back(const Request& request) const;
  // Returns whether more than `pressure_high` of the blocks are referenced. Called only if `pressure_high` is set
  // (PressureOptions::pressure_preempts).
  [[nodiscard]] bool is_above_high() const;
  // Returns the number of blocks that must stay free when a request is admitted.
  [[nodiscard]] std::uint32_t num_min_free_blocks() const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
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
