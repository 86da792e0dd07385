#pragma once
// What the core plans for the worker in one step, and what the worker answers.
//
// A plan is a view: it stays valid until the step is applied. The worker keeps the token histories, so a plan never carries a
// token that was sampled in a step still in flight. Made on the core's thread; a worker may read it on others until then. A worker treats
// the parts in this order: released slots, admitted requests, block-table deltas, stores, fences, blocks to zero, block copies, loads, then
// the forward pass.
#include <cstdint>
#include <span>
#include <string_view>

#include "quire/base/ids.h"
#include "quire/base/sampling.h"
#include "quire/base/transfer.h"

namespace quire {

// A request that is added to the worker's batch: new, or resumed after a preemption. Its block table starts empty.
struct AdmittedRequest {
  RequestId id;
  Slot slot;
  std::span<const TokenId> tokens;      // prompt, then outputs known so far
  std::uint32_t num_prompt_tokens = 0;  // tokens[0 .. num_prompt_tokens) are the prompt
  const SamplingParams* sampling = nullptr;
  std::int64_t lora_id = 0;  // of the adapter that it runs with; 0: the model alone
};

// vLLM's scheduled_new_reqs, scheduled_resumed_reqs and scheduled_running_reqs.
enum class ScheduledKind : std::uint8_t { fresh, resumed, running };

// Tokens [num_computed_tokens, num_computed_tokens + num_tokens) of this slot's history run in this step.
struct ScheduledRequest {
  RequestId id;
  Slot slot;
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_tokens = 0;
  bool samples = false;  // the last scheduled token is the last known one, so a token is sampled after it
  bool pools = false;    // it is the last one of a pooling request, whose hidden row is its output
  ScheduledKind kind = ScheduledKind::running;
  bool send_all_tokens = false;                   // was not in the plan before this one: the worker may have forgotten its tokens
  std::int32_t num_output_tokens = 0;             // placeholders included
  std::span<const TokenId> drafts;                // the last so many of the scheduled tokens; -1: the worker's own proposals
  std::span<const TokenId> new_tokens;            // pipeline without async: the tokens sampled since, for the first stage
  std::span<const std::uint32_t> encoder_inputs;  // indices of the multimodal inputs whose encoder runs in this step
};

enum class TableUpdate : std::uint8_t { append, replace_all, replace_one };

// What changes in one request's block table of one cache group. append: behind what is there. replace_all: the table is these blocks.
// replace_one: the entry at `index` becomes the one block of `blocks`.
struct BlockTableDelta {
  Slot slot;
  std::uint32_t group = 0;  // cache group
  RequestId id;
  TableUpdate update = TableUpdate::append;
  std::uint32_t index = 0;  // replace_one: the entry
  std::span<const BlockId> blocks;
};

// The whole block in every layer of the group, after all steps before this one. Copies are made in the plan's order: a source may be the
// destination of a later one.
struct BlockCopy {
  RequestId id;  // whose block the destination is
  std::uint32_t group = 0;
  BlockId source, destination;
};

// The step number is that of the plan; results name it. Lists that are empty mean that nothing of the kind happens.
struct StepPlan {
  StepId step;
  std::span<const Slot> released;  // finished or preempted since the last plan
  std::span<const AdmittedRequest> admitted;
  std::span<const BlockTableDelta> table_deltas;
  std::span<const BlockCopy> copies;            // of blocks shared since a fork that this step writes to
  std::span<const ScheduledRequest> scheduled;  // vLLM's num_scheduled_tokens, in its order
  std::uint32_t num_scheduled_tokens = 0;

  std::span<const RequestId> finished;                      // since the last plan, each once
  std::span<const RequestId> preempted;                     // by this plan, in order
  std::span<const std::uint32_t> num_common_prefix_blocks;  // per cache group: of all running requests
  std::span<const std::string_view> freed_encoder_outputs;  // identifiers the worker may forget
  std::span<const BlockId> blocks_to_zero;
  std::span<const Transfer> transfers;  // that begin with this plan
  std::span<const TransferId> fences;   // open stores and loads whose blocks this plan writes to: over before it does
  bool has_structured_output = false;
  bool pending_structured_output = false;  // a grammar waits for tokens in flight
};

// Tokens are grouped by request, in the plan's order. Each scheduled request with samples == true has one token, and one more per accepted
// draft. With asynchronous scheduling the first one is required: the core holds a placeholder for it, and a request that never gets it is
// not scheduled up to its end (as in vLLM).
struct SampledToken {
  RequestId id;
  TokenId token = 0;
};

// What the worker says of one plan, in the order in which plans were made. The views must live until apply() returns; the core copies what
// it keeps.
struct StepResult {
  StepId step{};
  std::span<const SampledToken> sampled{};

  std::span<const RequestId> pooled{};            // have their pooled output
  bool has_connector_output = false;              // the four below count
  std::span<const RequestId> finished_sending{};  // in the order in which they are handled
  std::span<const RequestId> finished_receiving{};
  std::span<const BlockId> invalid_blocks{};  // could not be loaded
  // Requests whose loads failed, of those that wait for one; where block ids do not tell. They are received too, then or later.
  std::span<const RequestId> failed_receiving{};
  // Transfers of this plan or an earlier one that are over. The core derives the three lists above from them; a host that begins none gives
  // the lists themselves.
  std::span<const TransferCompletion> completions{};
};

}  // namespace quire
