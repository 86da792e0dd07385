#pragma once
// Divides the prompt tokens of a step (PrefillLimits) among the requests that compute prompts: first among tenants, then among the requests
// of each tenant. The unit is a cost (PromptCost), because a token after a long context costs more than a token at the beginning.
//
// - Tenants get max-min fair shares: no tenant gets more than it needs, and the rest is divided among the others. Without
//   SchedulerOptions::tenant_turns, all requests belong to one tenant.
// - The share of each tenant suffices for the shortest chunk of its first prompt. If a step has no room for all these chunks, the tenants
//   whose prompts got tokens least recently get theirs.
// - Background requests (RequestTags::is_background) divide the cost that other requests leave. Each of their tenants still gets a shortest
//   chunk if the limit has room for it.
// - Up to four requests of a tenant divide its share evenly, in the order of the loops. A short prompt therefore does not wait for the end
//   of a long one.
// - The first running prompt gets a chunk in each step, beyond the limit if necessary. It therefore ends, and another becomes the first.
//
// A request counts as a prompt in a step if it needs more tokens than a decode with its draft tokens, and has no encoder inputs, which must
// not be split. Decodes are never limited.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/schedule/loops/prompt_cost.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/tenant_turns.h"

namespace quire {

// Starts from scratch in each step, on the core's thread. Part of StepBudget.
class PromptShares {
 public:
  PromptShares(const Context& context, const Queues& queues, const TenantScheduler& tenants)
      : context_(context), queues_(queues), tenants_(tenants) {}

  // Computes the shares of this step. With `may_admit`, waiting requests may get blocks, so as many of them count as there are free rows.
  void begin_step(const PrefillLimits& limits, bool may_admit);
  // Returns whether prompt tokens are limited in this step.
  [[nodiscard]] bool is_on() const { return is_on_; }
  // Returns how many of `wanted` tokens after its first `num_computed_tokens` the request may compute in this step; 0: none.
  [[nodiscard]] std::int32_t cap(const Request& request, std::int32_t num_computed_tokens, std::int32_t wanted) const;
  // Reports that the request received so many tokens after its computed ones; a negative number returns tokens.
  void note_tokens(const Request& request, std::int32_t num_tokens);

 private:
  struct Share {
    std::string_view tenant;
    bool is_background = false;
    std::size_t order = 0;  // position of the tenant in the order of the loops
    std::uint32_t num_prompts = 0;
    std::uint64_t last_step = 0;  // the newest step in which one of its prompts got tokens, plus 1; 0: none did
    // Costs:
    std::int64_t least = 0;  // of the shortest chunk of its first prompt
    std::int64_t wanted = 0;
    std::int64_t left = 0;
    std::int64_t per_prompt = 0;
  };
  [[nodiscard]] bool is_prompt(const Request& request, std::int64_t wanted) const {
    return wanted > num_decoded() && !request.has_encoder_inputs();
  }
  [[nodiscard]] std::int32_t num_decoded() const { return static_cast<std::int32_t>(1 + context_.config.speculation.num_spec_tokens); }
  // Returns whether the request belongs to the share.
  [[nodiscard]] bool is_of(const Request& request, const Share& share) const;
  [[nodiscard]] const Share* find(const Request& request) const;
  void count(const Request& request, std::int64_t wanted);
  // Count the running and the waiting requests. Each function returns whether a request decodes.
  bool count_running();
  bool count_waiting();
  void divide();

  const Context& context_;
  const Queues& queues_;
  const TenantScheduler& tenants_;
  bool is_on_ = false;
  PromptCost cost_;
  std::int32_t least_tokens_ = 0;  // the shortest chunk
  std::int64_t longest_context_ = 0;
  std::int64_t left_over_ = 0;      // cost that no counted prompt wants
  const Request* first_ = nullptr;  // the first running prompt
  std::vector<Share> shares_;
};

}  // namespace quire
