#pragma once
// The native part of quire.vllm.Scheduler: the core, the records of vLLM's requests, and the parts of vLLM's step objects. The bridge makes
// these parts fast; the Python adapter of the vLLM version assembles them.
//
// Not thread-safe. The GIL is held throughout, except while a trace or a journal is flushed. An exception of a Python object that the core
// calls (connector, grammar) leaves the core in an undefined state, so later calls report that the bridge is broken.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "quire/core.h"
#include "quire/journal.h"
#include "quire/step_trace.h"
#include "vllm/outputs.h"
#include "vllm/record.h"
#include "vllm/request_mirror.h"
#include "vllm/seams.h"

namespace quire::python {

// Options that the adapter passes at construction. `hooks` is the Python object that the core calls; seams.cpp lists the methods.
struct BridgeOptions {
  nb::object hooks;
  nb::list statuses;  // RequestStatus members in quire's order
  OutputTypes outputs;
  bool has_connector = false, has_encoder_connector = false, has_grammar = false, detects_tools = false;
  bool resumed_as_new = false;       // resumed requests are listed with the new requests (vLLM's v2 model runner)
  bool sends_new_token_ids = false;  // new_token_ids must be sent (pipeline parallelism without asynchronous scheduling)
  std::int32_t routed_group = -1;    // cache group of the routed experts; -1: they are not returned
  TraceOptions trace;                // an empty path turns the trace off
  std::string connector;             // name of the connector in the trace; empty: no connector
  JournalOptions journal;            // an empty folder turns the journal off
  // Only accept() and count_valid() call the grammar manager (DecisionRules::grammar_rejection_ends_request).
  bool uses_grammar_manager = false;
  nb::object prefill_stats;  // class PrefillStats if a request's first output contains one; None: outputs contain counts
};

// The parts of vLLM's ModelRunnerOutput that update() needs.
struct StepOutput {
  nb::handle scheduled;  // num_scheduled_tokens dict of the plan
  nb::handle index;      // request id -> row
  nb::handle sampled, logprobs, prompt_logprobs, pooled, nans;
  nb::handle finished_sending, finished_receiving, invalid_blocks, failed_receiving;  // the first three are `None` without connector output
};

class Bridge {
 public:
  Bridge(const CoreConfig& config, BridgeOptions options);

  // Adds a new request. Reads the id, name, prompt and hashes from the Python object, and the other fields from `fields`.
  void add(const nb::object& request, NewRequest fields, bool pass_hashes, StepInput input);
  // Adds an input to a session; `input` is null if no more input will come.
  void continue_session(nb::handle name, const SessionInput* input, StepInput now);
  // Applies the next input to the Python request of a session that continues.
  void show_session_input(nb::handle name);

  // Returns (parts of a SchedulerOutput, or None if the connector has already received them; has_structured_output;
  // pending_structured_output).
  nb::tuple schedule(StepInput input);
  // Returns (outputs per client, finished sets or None, statistics or None, KV events or None).
  nb::tuple update(const StepOutput& output, StepInput input);
  // If all outstanding steps before the step with the dict `scheduled` have scheduled nothing, returns their number, otherwise 0.
  [[nodiscard]] std::size_t num_idle_before(nb::handle scheduled) const;
  void set_drafts(nb::handle names, nb::handle drafts);
  // Sets draft tokens in the newest plan. Returns the tokens that fit, for the given requests: {name: [token, ...]}.
  nb::dict set_drafts_in_plan(nb::handle names, nb::handle drafts);
  // Ends the named requests (None: all requests). Returns [(name, client index), ...] of the requests that had not ended before.
  nb::list finish(nb::handle names, RequestStatus status, StepInput input);
  bool reset_prefix_cache(bool preempt_running, bool reset_connector, StepInput input);
  bool reset_connector_cache();
  void reset_encoder_cache();
  nb::object make_stats();
  // Waits until all steps are on disk and returns (steps written, steps dropped), or None without a trace.
  nb::object flush_trace();
  // Waits until all bytes are on disk and returns (path, bytes, why it ended or None), or None without a journal.
  nb::object flush_journal();

  // Returns {name: Request} after refreshing every request. The dict belongs to the bridge.
  nb::dict requests();
  [[nodiscard]] nb::dict stale_requests() const { return requests_; }
  // Returns the refreshed request, or None for an unknown name.
  nb::object request(nb::handle name);
  [[nodiscard]] bool is_prefill_chunk(nb::handle name) const;
  nb::set finished_names();
  nb::list names_of(std::span<const RequestId> ids) const;
  // Returns the names of the requests in a queue. `which`: 0 running, 1 waiting, 2 skipped waiting.
  [[nodiscard]] nb::list queue_names(int which) const;
  // Returns the names of the requests that the newest step scheduled.
  [[nodiscard]] nb::list last_step_names() const;
  nb::object block_ids(nb::handle name) const;
  Core& core() { return *core_; }
  [[nodiscard]] RequestRecord* lookup(nb::handle name) const;

  // The following functions are called by the objects in seams.cpp.
  [[nodiscard]] RequestRecord* find(RequestId id) const { return records_.find(id); }
  nb::object refreshed(const RequestView& view);
  nb::object refreshed(RequestId id);
  void refresh_running();
  // Refreshes the Python request if other code holds it. Called after each call that may have changed the request.
  void refresh_if_held(RequestRecord& record);
  void send_plan_to_connector(const StepPlan& plan);
  [[nodiscard]] const BridgeOptions& options() const { return options_; }

 private:
  struct Outstanding {
    const StepPlan* plan;
    nb::object scheduled;  // the dict that schedule() returned
  };

  // Calls the core. After an exception of a Python object that the core calls, the bridge is broken.
  template <class Call>
  decltype(auto) guarded(Call call) {
    if (broken_) raise_state("the scheduler cannot continue: an earlier call ended with an exception of a connector or grammar");
    broken_ = true;
    struct BrokenGuard {
      bool& broken;
      int depth = std::uncaught_exceptions();
      ~BrokenGuard() { broken = std::uncaught_exceptions() > depth; }
    } guard{broken_};
    return call();
  }

  RequestRecord& record_or_raise(nb::handle name) const;
  std::vector<Draft> drafts_of(nb::handle names, nb::handle drafts, std::vector<std::vector<TokenId>>& kept) const;
  [[nodiscard]] RequestView view_of(const RequestRecord& record) const;
  void take_session_input(RequestRecord& record, const RequestView& view);
  void end(RequestRecord& record, RequestStatus status);
  void remove_from_requests(RequestRecord& record);
  void remove_if_core_forgot(RequestRecord& record);
  void remove_unpinned();
  void drop_finished_record(RequestRecord& record);

  nb::object pieces_of(const StepPlan& plan);
  nb::object tokens_of(RequestId id) const;
  [[nodiscard]] nb::object empty_blocks() const;
  void prepare_blocks(const StepPlan& plan);

  void require_oldest(nb::handle scheduled) const;
  void collect_results(const StepPlan& plan, const StepOutput& output, std::vector<SampledToken>& sampled, std::vector<RequestId>& pooled);
  [[nodiscard]] bool is_dropped(const RequestRecord& record) const;
  void collect_row(const ScheduledRequest& scheduled, const StepOutput& output, std::vector<SampledToken>& sampled,
                   std::vector<RequestId>& pooled);
  nb::dict report(const StepOutcome& outcome, const StepOutput& output);
  void append_output(const RequestUpdate& update, const StepOutput& output, nb::dict& outputs);
  nb::object reported_tokens(const RequestUpdate& update) const;
  void mirror_paused_session(RequestRecord& record);
  void add_tokens(RequestRecord& record, const RequestUpdate& update);
  void add_prefill_stats(RequestRecord& record, const RequestUpdate& update, OutputFields& fields) const;
  nb::object finished_sets(const StepOutcome& outcome);
  void drop_retired(const StepOutcome& outcome);
  nb::object routed_experts(const RequestUpdate& update);

  BridgeOptions options_;
  Seams seams_;
  std::unique_ptr<StepTrace> trace_;      // null: off
  std::unique_ptr<CoreJournal> journal_;  // null: off
  std::unique_ptr<Core> core_;
  RecordTable records_;
  RequestMirror request_mirror_;
  OutputBuilder outputs_;
  nb::dict requests_;              // name -> Request, in order of addition
  nb::dict ids_;                   // name -> value of the RequestId
  std::vector<RequestId> pinned_;  // under CONTINUUM: ended requests that the core had not removed at the last check
  std::deque<Outstanding> outstanding_;
  std::uint32_t max_plans_;
  std::uint32_t num_groups_;
  bool include_finished_set_;
  bool broken_ = false;

  nb::object pieces_;             // parts of the plan that is being made
  nb::object scheduled_;          // num_scheduled_tokens dict of the plan that is being made
  nb::object last_scheduled_;     // num_scheduled_tokens dict of the newest plan; null after a reset that preempted all requests
  std::vector<nb::handle> rows_;  // during update(), per scheduled request: list of sampled tokens, or null
  std::vector<Py_ssize_t> row_numbers_;
  std::vector<std::uint8_t> needed_logprobs_;        // by row: whether log probabilities were requested before the result was taken
  std::vector<std::vector<BlockId>> routed_blocks_;  // during update(), per scheduled request
  std::vector<std::uint64_t> routed_tokens_;         // during update(), per scheduled request: number of tokens before the step
  std::vector<std::pair<RequestId, std::int64_t>> nans_;
};

// Returns vLLM's statistics as plain values for the adapter.
nb::object stats_of(const SchedulerStats* stats);
// Returns KV events as tuples ("stored", ...), ("removed", ...) and ("cleared",).
nb::object events_of(std::span<const KvEvent> events);

}  // namespace quire::python
