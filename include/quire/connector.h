#pragma once
// Interfaces that the core calls in the middle of a step: KV connector, encoder-cache connector, grammar and tool namer. Each call is
// synchronous and on the core's thread. An implementation may call only const members of Core. The contracts come from vLLM V1 (v0.19.0):
// KVConnectorBase_V1 (scheduler half), ECConnectorBase and StructuredOutputManager.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/request.h"
#include "quire/base/transfer.h"
#include "quire/cache_probe.h"

namespace quire {

class Core;
struct StepPlan;

// The blocks of a request: one list per cache group, in token order. A view, valid during the call.
using GroupBlocks = std::span<const std::span<const BlockId>>;

// A connector's answer to match().
struct ExternalMatch {
  std::optional<std::uint32_t> num_tokens;  // tokens after the prefix-cache hit; nullopt: not known yet, ask again later
  bool load_async = false;                  // true: the request waits while its blocks are filled
};

// Scheduler half of a KV connector (vLLM's KVConnectorBase_V1): decides which blocks of a request are loaded and stored.
class Connector {
 public:
  virtual ~Connector() = default;
  // Called once, before all other functions, with the core that will call the connector. Const members of `core` may be called at any time,
  // also in the middle of a step.
  virtual void bind(const Core& /*core*/) {}
  // Returns true if the connector supports several cache groups, and block lists with null blocks (blocks that a sliding window has
  // passed). This is vLLM's SupportsHMA.
  [[nodiscard]] virtual bool supports_groups() const { return false; }
  // Returns true if the connector also supports cache groups that keep states (MambaSpec). A load for such a group fills only the group's
  // last block, and at least one token after the loaded tokens must remain to be computed.
  [[nodiscard]] virtual bool supports_states() const { return false; }
  // Returns how many tokens the connector can supply after the first `num_local_tokens`, which the prefix cache holds (vLLM:
  // get_num_new_matched_tokens). Not called for a request that loads nothing (NewRequest::loads_nothing), nor for a fork that holds shared
  // blocks. match() must not reserve anything, because it is called again for a request that was not admitted; only allocated() means that
  // the request got its blocks.
  virtual ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) = 0;
  // Appends what match() would return to `matches`, in token order. Has no side effects: counts nothing, does not change the order of
  // eviction and waits for nothing. The core does not know `request`. Blocks that are being loaded for other requests count as present.
  // Returns false if the connector cannot predict its match.
  virtual bool peek(const RequestView& /*request*/, std::uint32_t /*num_local_tokens*/, std::vector<TierMatch>& /*matches*/) {
    return false;
  }
  // Called when a request got its blocks (vLLM: update_state_after_alloc). `blocks` are all blocks of the request, in every group.
  virtual void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) = 0;
  // Called when a request has finished (vLLM: request_finished, request_finished_all_groups). Returns true to keep the blocks until the
  // request is listed in finished_sending. If the request had transfers, the core itself lists it, as vLLM's workers do: in the result of
  // the plan that lists the request as finished or, if a transfer of the request is then open or was refused, in the first later result
  // without such a transfer. The blocks hold the view's `num_computed_tokens` tokens, or 0 tokens if the request has released its blocks.
  virtual bool finished(const RequestView& request, GroupBlocks blocks) = 0;
  // Called once per plan, after all its decisions and before its tokens count as computed (vLLM: build_connector_meta). The plan is a view:
  // copy what is needed later.
  virtual void planned(const StepPlan& plan) = 0;
  // Adds the transfers that begin with this plan. Called after planned(). A request that waits for its blocks needs a load in the plan that
  // made it wait, and continues when its loads are over. A connector that delays a store to a later plan must call Core::blocks() in each
  // plan, and must drop the store if the request no longer holds the blocks, because a window has passed them or the waiting request has
  // released them.
  virtual void plan_transfers(const StepPlan& /*plan*/, TransferList& /*transfers*/) {}
  // Called within apply() when a transfer is over.
  virtual void completed(const TransferCompletion& /*completion*/) {}
  // Called when requests end because their blocks could not be loaded (KvLoadFailurePolicy::fail). It may reorder `finishing`, the order in
  // which the requests are finished, and `reported`, the order of their updates. Both lists begin with the `num_async` requests that wait
  // for their blocks, followed by running requests. vLLM iterates over Python sets here; a host that must reproduce vLLM's order sorts the
  // lists accordingly.
  virtual void order_failed(std::size_t /*num_async*/, std::span<RequestId> /*finishing*/, std::span<RequestId> /*reported*/) {}
  // Called when the request's blocks hold unusable values (Core::forget_blocks). Stored copies of these blocks must not be loaded again.
  virtual void forget_blocks(const RequestView& /*request*/) {}
  // Called within apply() with FixOptions::unloaded_begin_anew, when a load failed: all tokens of the request after the first
  // `num_valid_tokens` were computed from blocks that the load did not fill. These tokens must not be stored: forget stores that were
  // refused or not added yet. No store of these tokens has begun. The request has ended, ends now, or is computed from scratch.
  virtual void invalidated(const RequestView& /*request*/, std::uint32_t /*num_valid_tokens*/) {}
  // Called within apply() when the last transfer that kept the blocks of a finished request is over. The blocks are then freed.
  virtual void sent(RequestId /*request*/) {}
  // Called within apply() when the result carries connector output (StepResult::has_connector_output, or a transfer that is over). The
  // step's tokens have been applied by then; the finished transfers have not (vLLM: update_connector_output).
  virtual void step_output() = 0;
  // Forgets all blocks (vLLM: reset_cache). Returns true if the connector holds no blocks afterwards, and false if it keeps its blocks. The
  // core reports the result to its caller.
  virtual bool reset() = 0;
};

// Stores outputs of image and audio encoders outside of this worker (vLLM's ECConnectorBase). Owned by the caller of Core::create.
class EncoderConnector {
 public:
  virtual ~EncoderConnector() = default;
  // Returns true if this encoder output is stored outside (vLLM: has_cache_item).
  virtual bool has(std::string_view identifier) = 0;
  // Called when a slot of the encoder cache was allocated for the output of input `index` (vLLM: update_state_after_alloc).
  virtual void allocated(const RequestView& request, std::uint32_t index) = 0;
};

// Decides which output tokens a request with structured output may have. One object serves all requests of a core. It identifies requests
// by id and receives outputs in the order in which they were sampled.
class Grammar {
 public:
  virtual ~Grammar() = default;
  // Returns true if the request's grammar is compiled.
  virtual bool ready(RequestId id) = 0;
  // Returns true if the grammar cannot be compiled. Called only with DecisionRules::grammar_rejection_ends_request; the request then ends.
  virtual bool failed(RequestId /*id*/) { return false; }
  // Returns true if output tokens advance the grammar; false while the model is in its reasoning part.
  virtual bool should_advance(const RequestView& request) = 0;
  // Advances the grammar by sampled tokens. Returns false if the tokens do not match; the request continues nevertheless, as in vLLM.
  virtual bool accept(RequestId id, std::span<const TokenId> tokens) = 0;
  // Returns the number of leading draft tokens that match the grammar.
  virtual std::uint32_t count_valid(RequestId id, std::span<const TokenId> drafts) = 0;
  // Starts the grammar state of the new request `child` after the first `num_outputs` output tokens of `parent`. Afterwards the two
  // grammars advance separately. Returns false if the grammar cannot go back to that token; the request is then not forked.
  virtual bool fork(RequestId /*parent*/, RequestId /*child*/, std::uint32_t /*num_outputs*/) { return false; }
};

// Names the tool that a job runs after a turn, if the request's tags do not name it (SchedulingPolicy::continuum).
class ToolNamer {
 public:
  virtual ~ToolNamer() = default;
  // Returns the name of the tool that the finished request's output calls; empty: the output calls no tool.
  virtual std::string tool_of(const RequestView& request) = 0;
};

}  // namespace quire
