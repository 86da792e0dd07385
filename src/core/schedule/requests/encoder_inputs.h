#pragma once
// Chooses the encoder inputs (images, audio) to compute in this step, and releases their outputs.
//
// Queries of the encoder cache have side effects, as in vLLM: the request gets a reference to a cached output, and unreferenced outputs are
// evicted to make room for a new output.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/kv/encoder_cache.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"

namespace quire {

// The result of vLLM's _try_schedule_encoder_inputs. The lists are scratch memory, valid until the next call.
struct EncoderGrant {
  std::int32_t num_new_tokens = 0;
  std::int64_t compute_budget = 0;            // embeddings left in the step
  std::span<const std::uint32_t> to_compute;  // inputs that the encoder computes in this step
  std::span<const std::uint32_t> to_load;     // inputs whose outputs an encoder connector has
  std::span<const std::uint32_t> to_share;    // inputs whose output another input of this step computes (encoder_outputs_held_per_input)
};

// Called by the two loops and by the parts that preempt, advance or end requests, on the core's thread. For each request, a loop calls
// schedule() first, and allocate() with the same grant when the request has its blocks. No other request may be planned in between, because
// the grant contains the remaining budget.
class EncoderScheduler {
 public:
  explicit EncoderScheduler(Context& context)
      : context_(context),
        cache_(context.config.encoder.is_encoder_decoder ? EncoderCacheMode::encoder_decoder : EncoderCacheMode::shared,
               context.config.encoder.encoder_cache_size, context.rules) {}

  void begin_step() { budget_ = context_.config.encoder.max_encoder_tokens; }
  // Chooses inputs for the `num_new_tokens` tokens after num_computed_tokens, which need the outputs of all inputs that they overlap. If an
  // output is not available, the chunk ends before its input.
  EncoderGrant schedule(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens);
  // Applies the grant to the request scheduled last.
  void allocate(const Request& request, const EncoderGrant& grant, PlanArena& arena);
  // Returns the encoder budget of a request that is removed from this step.
  void take_back(const Request& request, const PlanArena& arena);
  // Releases outputs of computed tokens, which are in the KV cache. Called when the tokens are planned. With
  // encoder_outputs_freed_on_results it is called when a result has arrived, and only for tokens that no later result can reject.
  void release_computed(const Request& request);
  void release_all(const Request& request) { cache_.release_all(inputs_of(request)); }

  // Requests that must end with the next result (rejects_mismatched_encoder_sizes), in the order in which they were found, without
  // duplicates.
  [[nodiscard]] std::span<const RequestId> mismatched() const { return mismatched_; }
  void forget_mismatched() { mismatched_.clear(); }

  [[nodiscard]] EncoderCache& cache() { return cache_; }
  [[nodiscard]] const EncoderCache& cache() const { return cache_; }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [context, cache, budget, mismatched, to_compute, to_load, to_share, planned, cached_inputs] = self;
    form(cache, mismatched);  // the budget is valid within one step
  }

 private:
  // The state of schedule() for one request.
  struct Step {
    std::int32_t num_computed_tokens = 0;
    std::int32_t num_new_tokens = 0;
    // With EAGLE, the draft model reads the token after the one from which it drafts, so an input is needed one token before its
    // placeholder.
    std::int32_t shift = 0;       // tokens that a draft model looks ahead
    std::int32_t window_end = 0;  // end of the tokens that are considered
    std::int64_t compute_budget = 0;
    std::int64_t num_planned_embeds = 0;
  };

  // Returns the range [first, second) of inputs that the chunk may need.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> find_inputs(const Request& request, const Step& step) const;
  bool take(const Request& request, std::uint32_t input, Step& step);
  // Returns whether the output need not be computed: it is cached, or another input of this step has the same output.
  bool is_made(const Request& request, std::uint32_t input);
  // Returns whether an output of another size is known under this identifier. The request must then end.
  bool is_mismatched(const Request& request, std::uint32_t input);
  [[nodiscard]] std::int32_t num_lookahead() const { return context_.config.speculation.use_eagle ? 1 : 0; }
  [[nodiscard]] static EncoderInputs inputs_of(const Request& request) { return {request.id, request.features}; }

  Context& context_;
  EncoderCache cache_;
  std::int64_t budget_ = 0;  // embeddings left in the step
  std::vector<RequestId> mismatched_;
  // Scratch memory, reused so that a step does not allocate.
  std::vector<std::uint32_t> to_compute_, to_load_, to_share_;
  std::vector<std::uint32_t> planned_;  // inputs of to_compute_ and to_load_
  std::vector<std::uint32_t> cached_inputs_;
};

}  // namespace quire
