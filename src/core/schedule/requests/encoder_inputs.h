#pragma once
// Which encoder inputs (images, sounds) are computed in this step, and when their outputs may go.
//
// Asking has effects, as in vLLM: a cached output that is found is referenced by the request, and room for a new one is made by evicting
// outputs that nobody needs.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/kv/encoder_cache.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"

namespace quire {

// What _try_schedule_encoder_inputs decides. The lists are scratch, valid until the next call.
struct EncoderGrant {
  std::int32_t num_new_tokens = 0;
  std::int64_t compute_budget = 0;            // embeds: what is left
  std::span<const std::uint32_t> to_compute;  // inputs whose encoder runs in this step
  std::span<const std::uint32_t> to_load;     // inputs whose output comes from elsewhere
  std::span<const std::uint32_t> to_share;    // inputs of the same names as these (inputs_hold_outputs)
};

// Called by both loops, on the core's thread: schedule() first, then, once the request has its blocks, allocate() with the same grant.
// Between the two nothing may be planned for another request, since the grant says what is left of the step.
class EncoderScheduler {
 public:
  explicit EncoderScheduler(Context& context)
      : context_(context),
        cache_(context.config.encoder.is_encoder_decoder ? EncoderCacheMode::encoder_decoder : EncoderCacheMode::shared,
               context.config.encoder.encoder_cache_size, context.rules) {}

  void begin_step() { budget_ = context_.config.encoder.max_encoder_tokens; }
  // The tokens [num_computed_tokens, + num_new_tokens) need the outputs of the inputs they overlap. Where one cannot be had, the tokens
  // end before it.
  EncoderGrant schedule(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens);
  // For the request scheduled last.
  void allocate(const Request& request, const EncoderGrant& grant, PlanArena& arena);
  // It is taken out of this step again.
  void take_back(const Request& request, const PlanArena& arena);
  // Outputs whose tokens are computed are in the KV cache. Asked when they are planned, or, with outputs_follow_results, when a result has
  // come, of those that no result can take back any more.
  void release_computed(const Request& request);
  void release_all(const Request& request) { cache_.release_all(inputs_of(request)); }

  // sizes_must_agree: who is to end with the next result, in the order in which they were found, each once.
  [[nodiscard]] std::span<const RequestId> mismatched() const { return mismatched_; }
  void forget_mismatched() { mismatched_.clear(); }

  [[nodiscard]] EncoderCache& cache() { return cache_; }
  [[nodiscard]] const EncoderCache& cache() const { return cache_; }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [context, cache, budget, mismatched, to_compute, to_load, to_share, planned, cached_inputs] = self;
    form(cache, mismatched);  // the budget is a step's
  }

 private:
  // The decision on one request's inputs, on its way.
  struct Step {
    std::int32_t num_computed_tokens = 0;
    std::int32_t num_new_tokens = 0;
    // EAGLE reads the token behind the one that it drafts for, so an input is needed one token before its placeholder is reached.
    std::int32_t shift = 0;       // a drafting model looks one token further
    std::int32_t window_end = 0;  // behind the last token that is looked at
    std::int64_t compute_budget = 0;
    std::int64_t num_planned_embeds = 0;
  };

  // The inputs [first, second) that the chunk may need.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> find_inputs(const Request& request, const Step& step) const;
  bool take(const Request& request, std::uint32_t input, Step& step);
  // Whether the request need not have its output made: another input of this step has the same, or it is cached.
  bool is_made(const Request& request, std::uint32_t input);
  // It is known by another size, so that its request is to end.
  bool is_mismatched(const Request& request, std::uint32_t input);
  [[nodiscard]] std::int32_t num_lookahead() const { return context_.config.speculation.use_eagle ? 1 : 0; }
  [[nodiscard]] static EncoderInputs inputs_of(const Request& request) { return {request.id, request.features}; }

  Context& context_;
  EncoderCache cache_;
  std::int64_t budget_ = 0;  // embeds: what is left of the step
  std::vector<RequestId> mismatched_;
  // Scratch, kept for its memory: a step allocates nothing once they have grown.
  std::vector<std::uint32_t> to_compute_, to_load_, to_share_;
  std::vector<std::uint32_t> planned_;  // the first two
  std::vector<std::uint32_t> cached_inputs_;
};

}  // namespace quire
