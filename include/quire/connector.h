#pragma once
// Interfaces that the core calls in the middle of a step: KV connector, encoder-cache connector, grammar, tool namer. Each call is
// synchronous, on the core's thread. An implementation may call only const members of Core. The rules come from vLLM V1 (v0.19.0):
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
  // Counts tokens, not blocks. Until the number is known, the core asks again in every step in which it looks at the request.
  std::optional<std::uint32_t> num_tokens;  // tokens after the local hit; nullopt: not known yet, ask again in a later step
  bool load_async = false;                  // true: the request waits while its blocks are filled
};

// Scheduler half of a KV connector (vLLM's KVConnectorBase_V1): decides which blocks of a request are loaded and stored.
class Connector {
 public:
  virtual ~Connector() = default;
  // Called once, before all other calls, with the core that will call it. Const members of `core` may be called at any time, also in the
  // middle of a step.
  virtual void bind(const Core& /*core*/) {}
  // vLLM's SupportsHMA. Returns true if it supports several cache groups, and block lists with null blocks (blocks that a sliding window
  // has passed).
  [[nodiscard]] virtual bool supports_groups() const { return false; }
  // Returns true if it also supports groups that keep states (MambaSpec). A load of such a group needs only its last block, and one token
  // after the loaded ones stays to be computed.
  [[nodiscard]] virtual bool supports_states() const { return false; }
  // get_num_new_matched_tokens. Returns how many tokens it can supply after the first `num_local_tokens`, which the prefix cache holds. Not
  // called for a request that loads nothing (NewRequest::loads_nothing), nor for a fork that holds shared blocks. Called again for a
  // request that was not admitted, so it must not reserve anything: only allocated() means that the request got its blocks.
  virtual ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) = 0;
  // Appends to `matches` what match() would answer, in token order. It has no side effects: it counts nothing, does not change the order of
  // eviction and waits for nothing. `request` is not known to the core. Blocks that are being loaded for other requests count as present.
  // Returns false if the connector cannot say.
  virtual bool peek(const RequestView& /*request*/, std::uint32_t /*num_local_tokens*/, std::vector<TierMatch>& /*matches*/) {
    return false;
  }
  // update_state_after_alloc. `blocks` are all blocks of the request, in every group.
  virtual void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) = 0;
  // request_finished(_all_groups). Returning true keeps the blocks until finished_sending lists the request. If the request had transfers,
  // the core itself lists it, as vLLM's workers do: with the result of the plan that names it as finished, or the first later one at which
  // no transfer of it is open or was refused. The blocks hold the view's `num_computed_tokens` tokens; 0 if the request has given them
  // back.
  virtual bool finished(const RequestView& request, GroupBlocks blocks) = 0;
  // build_connector_meta. Called once per plan, after all its decisions and before its tokens count as computed. The plan is a view: copy
  // whatever is needed later.
  virtual void planned(const StepPlan& plan) = 0;
  // Called after planned(): adds the transfers that begin with this plan. A request that waits for its blocks needs a load in the plan that
  // made it wait, and continues when its loads are over. A store that is delayed to a later plan must call Core::blocks() in each plan, and
  // is dropped if the request no longer holds its blocks: a window has passed them, or a waiting request has given them back.
  virtual void plan_transfers(const StepPlan& /*plan*/, TransferList& /*transfers*/) {}
  // Called within apply() when a transfer is over.
  virtual void completed(const TransferCompletion& /*completion*/) {}
  // Called when requests end because their blocks could not be loaded (KvLoadFailurePolicy::fail). It may reorder `finishing`, the order in
  // which they are finished, and `reported`, the order of their updates. Both arrive in the order found: first the `num_async` requests
  // that wait for their blocks, then running ones. vLLM iterates over Python sets here, and a host that must match it reorders accordingly.
  virtual void order_failed(std::size_t /*num_async*/, std::span<RequestId> /*finishing*/, std::span<RequestId> /*reported*/) {}
  // The request's blocks hold unusable values (Core::forget_blocks): stored copies of these blocks must not be loaded again.
  virtual void forget_blocks(const RequestView& /*request*/) {}
  // Called within apply(): everything that the request computed after its first `num_valid_tokens` tokens used blocks that a load should
  // have filled but did not (FixOptions::unloaded_begin_anew). These tokens must not be stored: forget their stores that were refused or
  // not added yet. No store of them has begun. The request has ended, ends now, or is computed from scratch.
  virtual void invalidated(const RequestView& /*request*/, std::uint32_t /*num_valid_tokens*/) {}
  // Called within apply(): the last transfer that kept the blocks of a finished request is over, and the blocks are freed.
  virtual void sent(RequestId /*request*/) {}
  // update_connector_output. Called within apply() when the result carries connector output (StepResult::has_connector_output, or a
  // transfer that is over): after the step's tokens are taken, and before the finished transfers are taken.
  virtual void step_output() = 0;
  // reset_cache. Returns true if the connector holds nothing afterwards; false if it keeps its blocks, which the core reports to its
  // caller.
  virtual bool reset() = 0;
};

// Keeps outputs of image and audio encoders outside of this worker (vLLM's ECConnectorBase). Owned by the caller of Core::create.
class EncoderConnector {
 public:
  virtual ~EncoderConnector() = default;
  // has_cache_item. Returns true if this encoder output is stored outside.
  virtual bool has(std::string_view identifier) = 0;
  // update_state_after_alloc, for input `index` of the request.
  virtual void allocated(const RequestView& request, std::uint32_t index) = 0;
};

// Decides which output tokens a request with structured output may have. One object serves all requests of a core. It identifies them by id
// and receives outputs in the order in which they were sampled.
class Grammar {
 public:
  virtual ~Grammar() = default;
  // Returns true when the request's grammar is compiled.
  virtual bool ready(RequestId id) = 0;
  // Returns true if the grammar cannot be compiled. Called only with DecisionRules::grammar_rejection_ends_request; the request then ends.
  virtual bool failed(RequestId /*id*/) { return false; }
  // Returns true if output tokens advance the grammar. They do not while the model is in its reasoning part.
  virtual bool should_advance(const RequestView& request) = 0;
  // Advances the grammar by sampled tokens. Returns false if they do not match; the request continues all the same, as in vLLM.
  virtual bool accept(RequestId id, std::span<const TokenId> tokens) = 0;
  // Returns the number of leading draft tokens that match the grammar.
  virtual std::uint32_t count_valid(RequestId id, std::span<const TokenId> drafts) = 0;
  // Starts the grammar state of the new request `child` after the first `num_outputs` output tokens of `parent`; both then advance
  // separately. Returns false if the grammar cannot go back to that token; the request is then not forked.
  virtual bool fork(RequestId /*parent*/, RequestId /*child*/, std::uint32_t /*num_outputs*/) { return false; }
};

// Names the tool that a job runs after a turn when the request's tags do not (SchedulingPolicy::continuum).
class ToolNamer {
 public:
  virtual ~ToolNamer() = default;
  // Returns the tool that the finished request's output calls; empty: none.
  virtual std::string tool_of(const RequestView& request) = 0;
};

}  // namespace quire
