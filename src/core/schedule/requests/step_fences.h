#pragma once
// Decides when the blocks of a request may return to the pool. Normally they return immediately: later writes to them are ordered after the
// steps in flight. A load is not ordered in this way. With Vllm032Options::defer_block_free, blocks therefore wait until the newest step
// that may write to them has ended.
#include <cstdint>

#include "base/check.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/request.h"

namespace quire {

// step.cpp reports each step, and code that frees blocks calls free() or may_free(), on the core's thread. Steps without tokens write
// nothing and are not counted.
class StepFences {
 public:
  StepFences(const Context& context, KvCacheManager& kv) : context_(context), kv_(kv) {}

  void begin(std::uint32_t num_tokens) { num_begun_ += num_tokens > 0 ? 1 : 0; }
  // Called when the result of a step has arrived. Results arrive in the order of their steps.
  void end(std::uint32_t num_tokens) {
    if (num_tokens == 0 || !context_.config.newer.defer_block_free) return;
    QUIRE_CHECK(num_over_ < num_begun_, "a step ends after it has begun");
    kv_.free_due(++num_over_);
  }
  // Records that the request is in the newest step.
  void note(Request& request) const { request.in_flight.last_fence = num_begun_; }
  [[nodiscard]] bool may_free(const Request& request) const {
    return !context_.config.newer.defer_block_free || request.in_flight.last_fence <= num_over_;
  }
  void free(Request& request) {
    if (may_free(request))
      kv_.free(request.blocks);
    else
      kv_.free_later(request.blocks, num_begun_);
  }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, num_begun, num_over] = self;
    form(num_begun, num_over);
  }

 private:
  const Context& context_;
  KvCacheManager& kv_;
  std::uint64_t num_begun_ = 0, num_over_ = 0;
};

}  // namespace quire
