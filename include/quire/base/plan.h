#pragma once
// The core's plan for one step of the worker, and the worker's result.
//
// A plan is a view: it is valid until the step is applied. The worker keeps the token histories, so a plan never contains a token that a
// step in flight samples. Plans are made on the core's thread. A worker may read a plan on other threads until the plan is applied. A
// worker must handle the parts in this order: released slots, admitted requests, block-table deltas, stores, fences, block copies, blocks
// to zero, loads, then the forward pass.
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
  std::int64_t lora_id = 0;  // LoRA adapter of the request; 0: the base model
};

// Kind of a scheduled request: vLLM's scheduled_new_reqs, scheduled_resumed_reqs and scheduled_running_reqs.
enum class ScheduledKind : std::uint8_t { fresh, resumed, running };

// A request in this step. The step runs tokens [num_computed_tokens, num_computed_tokens + num_tokens) of the history in the request's
// slot.
struct ScheduledRequest {
  RequestId id;
  Slot slot;
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_tokens = 0;
  bool samples = false;  // the last scheduled token is the last known token, so the step samples the next token
  bool pools = false;    // the last scheduled token ends the prompt of a pooling request; its hidden state is the output
  ScheduledKind kind = ScheduledKind::running;
  bool send_all_tokens = false;                   // the request was not in the previous plan: the worker may have forgotten its tokens
  std::int32_t num_output_tokens = 0;             // includes placeholders
  std::span<const TokenId> drafts;                // draft tokens, the last of the scheduled tokens; -1: proposed by the worker
  std::span<const TokenId> new_tokens;            // pipeline parallelism without async: newly sampled tokens, for the first stage
  std::span<const std::uint32_t> encoder_inputs;  // indices of the multimodal inputs that are encoded in this step
};

enum class TableUpdate : std::uint8_t { append, replace_all, replace_one };

// A change of one request's block table in one cache group. append: adds `blocks` at the end. replace_all: the table becomes `blocks`.
// replace_one: the entry at `index` becomes the one block of `blocks`.
struct BlockTableDelta {
  Slot slot;
  std::uint32_t group = 0;  // cache group
  RequestId id;
  TableUpdate update = TableUpdate::append;
  std::uint32_t index = 0;  // with replace_one: the index of the entry
  std::span<const BlockId> blocks;
};

// A copy of a whole block in every layer of the group, after all earlier steps. Copies run in the order of the plan. A source may also be
// the destination of a later copy, or a block to zero, if its owner freed it in this plan and another request took it.
struct BlockCopy {
  RequestId id;  // request that owns the destination
  std::uint32_t group = 0;
  BlockId source, destination;
};

// All work of one step. Results refer to a plan by its step number. An empty list means that the plan has no such work.
struct StepPlan {
  StepId step;
  std::span<const Slot> released;  // slots of requests that finished or were preempted since the last plan
  std::span<const AdmittedRequest> admitted;
  std::span<const BlockTableDelta> table_deltas;
  std::span<const BlockCopy> copies;            // copies of blocks that forks share and to which this step writes
  std::span<const ScheduledRequest> scheduled;  // vLLM's num_scheduled_tokens, in its order
  std::uint32_t num_scheduled_tokens = 0;

  std::span<const RequestId> finished;                      // requests that finished since the last plan, each once
  std::span<const RequestId> preempted;                     // requests that this plan preempts, in order
  std::span<const std::uint32_t> num_common_prefix_blocks;  // per cache group: number of leading blocks that all running requests share
  std::span<const std::string_view> freed_encoder_outputs;  // identifiers of outputs that the worker may forget
  std::span<const BlockId> blocks_to_zero;  // new blocks of this plan, if layers keep states; none is the destination of a copy
  std::span<const Transfer> transfers;      // transfers that begin with this plan
  std::span<const TransferId> fences;       // open stores and loads of blocks to which this plan writes; they must end before it writes
  bool has_structured_output = false;
  bool pending_structured_output = false;  // a grammar waits for the results of tokens in flight
};

// A token that a step sampled. Tokens are grouped by request, in the plan's order. Each scheduled request with samples == true has one
// token, and one more per accepted draft token. With async scheduling the first of these is required, because the core holds a placeholder
// for it: a request that never gets the token is not scheduled up to its end (as in vLLM).
struct SampledToken {
  RequestId id;
  TokenId token = 0;
};

// The worker's result of one plan. Results arrive in the order of the plans. The views must stay valid until apply() returns; the core
// copies what it needs later.
struct StepResult {
  StepId step{};
  std::span<const SampledToken> sampled{};

  std::span<const RequestId> pooled{};            // requests whose pooled output is computed
  bool has_connector_output = false;              // the next four fields have a meaning
  std::span<const RequestId> finished_sending{};  // in the order in which the core handles them
  std::span<const RequestId> finished_receiving{};
  std::span<const BlockId> invalid_blocks{};  // blocks that could not be loaded
  // Waiting requests with a failed load, if block ids do not identify the requests. They are also in finished_receiving, of this result or
  // a later one.
  std::span<const RequestId> failed_receiving{};
  // Transfers of this plan or an earlier one that have ended. The core derives finished_sending, finished_receiving and invalid_blocks from
  // them. A host whose plans have no transfers fills these three lists itself.
  std::span<const TransferCompletion> completions{};
};

}  // namespace quire
