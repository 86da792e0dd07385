#pragma once
// The seams that must answer in the middle of a step: a KV connector, an encoder-cache connector, a grammar, who names tools. Each is a
// synchronous call on the core's thread; none may call back into the core except for the const members of Core. The rules are those of vLLM
// V1 (v0.19.0): KVConnectorBase_V1 (scheduler half), ECConnectorBase, StructuredOutputManager.
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

// The blocks of a request: one list per cache group, in the order of the tokens. A view, valid during the call.
using GroupBlocks = std::span<const std::span<const BlockId>>;

struct ExternalMatch {
  // Counts tokens, not blocks. The core asks again in every step in which the request is looked at until it gets a number.
  std::optional<std::uint32_t> num_tokens;  // beyond the local hit; nullopt: not known yet, ask again in a later step
  bool load_async = false;                  // the blocks are filled while the request waits
};

class Connector {
 public:
  virtual ~Connector() = default;
  // Once, before all others: who asks. Its const members may be called at any time, also in the middle of a step.
  virtual void bind(const Core& /*core*/) {}
  // SupportsHMA: whether it knows several cache groups, and lists with null blocks, which a window has passed.
  [[nodiscard]] virtual bool supports_groups() const { return false; }
  // And groups that keep states (MambaSpec): of what it loads only the last block counts there, and a token is left to run behind its end.
  [[nodiscard]] virtual bool supports_states() const { return false; }
  // get_num_new_matched_tokens; not asked of a request that loads nothing (NewRequest::loads_nothing), nor of a fork with its share.
  // `num_local_tokens` are those that the prefix cache has; the answer counts from there. Asked again for a request that was not admitted,
  // so an answer must not take anything for granted: only allocated() says that the request got its blocks.
  virtual ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) = 0;
  // What match() would answer, appended to `matches` in the order of the tokens, as often as anybody asks: nothing is counted, kept young,
  // awaited or remembered, and `request` is not known to the core. What is being loaded for others counts as there. False: it cannot say.
  virtual bool peek(const RequestView& /*request*/, std::uint32_t /*num_local_tokens*/, std::vector<TierMatch>& /*matches*/) {
    return false;
  }
  // update_state_after_alloc: all blocks of the request, in every group
  virtual void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) = 0;
  // request_finished(_all_groups): true keeps the blocks until finished_sending names the request. Of one that has had transfers the core
  // says so itself, as vLLM's workers do: with the first result, from that of the plan on which names it as finished, by which none of them
  // is open and none was refused
  virtual bool finished(const RequestView& request, GroupBlocks blocks) = 0;
  // build_connector_meta: before the planned tokens count as computed
  // Once per plan, after everything in it is decided. The plan is a view: what is needed later must be copied.
  virtual void planned(const StepPlan& plan) = 0;
  // Thereafter: the transfers that begin with this plan. A request that waits for its blocks needs a load in the plan that has let it wait,
  // and goes on when its loads are over.
  virtual void plan_transfers(const StepPlan& /*plan*/, TransferList& /*transfers*/) {}
  // In apply(): a transfer is over.
  virtual void completed(const TransferCompletion& /*completion*/) {}
  // Some requests end because their blocks could not be loaded (KvLoadFailurePolicy::fail). May reorder `finishing`, the order in which
  // they are finished, and `reported`, the order of their updates. Both are given in the order found: first the num_async requests that
  // wait for their blocks, then running ones. vLLM iterates over Python sets here, and a host that must match it reorders accordingly.
  virtual void order_failed(std::size_t /*num_async*/, std::span<RequestId> /*finishing*/, std::span<RequestId> /*reported*/) {}
  // Its blocks hold what nobody may read (Core::forget_blocks): what was stored of them is not to be loaded again.
  virtual void forget_blocks(const RequestView& /*request*/) {}
  // In apply(): what the request has computed behind so many of its tokens came of blocks that a load was to fill and has not
  // (CureOptions::unloaded_begin_anew). It is not to be stored: a store of it that was refused or not asked for yet is to be forgotten.
  // None has begun. The request has ended, ends now, or begins anew.
  virtual void spoiled(const RequestView& /*request*/, std::uint32_t /*num_good_tokens*/) {}
  // In apply(): what kept the blocks of a finished request is over, and they are given back.
  virtual void sent(RequestId /*request*/) {}
  // update_connector_output: the step's results are taken, the finished transfers are not yet
  // Within apply(), where the result carries connector output (StepResult::has_connector_output, or a transfer that is over).
  virtual void step_output() = 0;
  // reset_cache
  // True: it holds nothing any more. False: it keeps what it has, and the core's caller is told so.
  virtual bool reset() = 0;
};

// Where outputs of an image or sound encoder are kept outside of this worker (vLLM's ECConnectorBase). Held by the caller of Core::create.
class EncoderConnector {
 public:
  virtual ~EncoderConnector() = default;
  // has_cache_item: another place holds this encoder output
  virtual bool has(std::string_view identifier) = 0;
  // update_state_after_alloc, for input `index` of the request
  virtual void allocated(const RequestView& request, std::uint32_t index) = 0;
};

// Says which outputs a request with structured output may have. One object serves all requests of a core; it knows them by id and is told
// of outputs in the order in which they were sampled.
class Grammar {
 public:
  virtual ~Grammar() = default;
  // The request's grammar is compiled.
  virtual bool ready(RequestId id) = 0;
  // It cannot be compiled (DecisionRules::refused_tokens_end: its request ends; else it is never asked).
  virtual bool failed(RequestId /*id*/) { return false; }
  // Output tokens move the grammar on (they do not while a reasoning part runs).
  virtual bool should_advance(const RequestView& request) = 0;
  // Sampled tokens. False: they do not fit; the request goes on all the same, as in vLLM.
  virtual bool accept(RequestId id, std::span<const TokenId> tokens) = 0;
  // Number of leading draft tokens that fit.
  virtual std::uint32_t count_valid(RequestId id, std::span<const TokenId> drafts) = 0;
  // The child, which is unknown so far, begins behind the first output tokens of the parent, and then goes its own way. False: it cannot be
  // there, and the request is not forked.
  virtual bool fork(RequestId /*parent*/, RequestId /*child*/, std::uint32_t /*num_outputs*/) { return false; }
};

// Under SchedulingPolicy::continuum: which tool a job runs after a turn, where the request's tags do not say.
class ToolNamer {
 public:
  virtual ~ToolNamer() = default;
  // By the finished request's output; empty: none.
  virtual std::string tool_of(const RequestView& request) = 0;
};

}  // namespace quire
