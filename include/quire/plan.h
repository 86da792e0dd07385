#pragma once
// What the core tells the worker in one step, and what the worker answers.
//
// A plan is a view: it stays valid until the step is applied. The worker keeps the token histories, so a plan never carries a
// token that was sampled in a step still in flight. A worker treats the parts in this order: released slots, admitted requests, block-table
// deltas, block copies, then the forward pass.
#include <cstdint>
#include <span>

#include "quire/ids.h"
#include "quire/sampling.h"

namespace quire {

// A request that enters the worker's batch: new, or resumed after a preemption. Its block table starts empty.
struct AdmittedRequest {
  RequestId id;
  Slot slot;
  std::span<const TokenId> tokens;      // prompt, then outputs known so far
  std::uint32_t num_prompt_tokens = 0;  // tokens[0 .. num_prompt_tokens) are the prompt
  const SamplingParams* sampling = nullptr;
};

// Tokens [num_computed_tokens, num_computed_tokens + num_tokens) of this slot's history run in this step.
struct ScheduledRequest {
  RequestId id;
  Slot slot;
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_tokens = 0;
  bool samples = false;  // the last scheduled token is the last known one, so a token is sampled after it
};

enum class TableUpdate : std::uint8_t { append, replace_all, replace_one };

struct BlockTableDelta {
  Slot slot;
  TableUpdate update = TableUpdate::append;
  std::uint32_t index = 0;  // replace_one: the entry
  std::span<const BlockId> blocks;
};

// Copies one block over all layers before the forward pass.
struct BlockCopy {
  BlockId source;
  BlockId target;
};

struct StepPlan {
  StepId step;
  std::span<const Slot> released;  // finished or preempted since the last plan
  std::span<const AdmittedRequest> admitted;
  std::span<const BlockTableDelta> table_deltas;
  std::span<const BlockCopy> copies;
  std::span<const ScheduledRequest> scheduled;
  std::uint32_t num_scheduled_tokens = 0;
};

// One entry per scheduled request with samples == true, in the plan's order.
struct SampledToken {
  RequestId id;
  TokenId token = 0;
};

struct StepResult {
  StepId step;
  std::span<const SampledToken> sampled;
};

enum class FinishReason : std::uint8_t { stop, length, abort, error };

}  // namespace quire
