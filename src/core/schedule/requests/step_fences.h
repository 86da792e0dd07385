#pragma once
// When blocks of a request may go back to the pool. At once, as a rule: what is written to them next is ordered behind the steps under way.
// A load is not, so with NewerOptions::defer_block_free they wait until the newest step that may write to them is over.
#include <cstdint>

#include "base/check.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/request.h"

namespace quire {

// Told of each step by step.cpp, asked by who frees, on the core's thread. Steps without tokens write nothing and are not counted.
class StepFences {
 public:
  StepFences(const Context& context, KvCacheManager& kv) : context_(context), kv_(kv) {}

  void begin(std::uint32_t num_tokens) { num_begun_ += num_tokens > 0 ? 1 : 0; }
  // Its result has come; results come in the order of their steps.
  void end(std::uint32_t num_tokens) {
    if (num_tokens == 0 || !context_.config.newer.defer_block_free) return;
    QUIRE_CHECK(num_over_ < num_begun_, "a step is over after it has begun");
    kv_.free_due(++num_over_);
  }
  // It is in the step that has begun last.
  void note(Request& request) const { request.last_fence = num_begun_; }
  [[nodiscard]] bool may_free(const Request& request) const {
    return !context_.config.newer.defer_block_free || request.last_fence <= num_over_;
  }
  void free(Request& request) {
    if (may_free(request))
      kv_.free(request.blocks);
    else
      kv_.free_later(request.blocks, num_begun_);
  }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, num_begun, num_over] = self;
    form(num_begun, num_over);
  }

 private:
  const Context& context_;
  KvCacheManager& kv_;
  std::uint64_t num_begun_ = 0, num_over_ = 0;
};

}  // namespace quire
