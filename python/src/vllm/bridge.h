#pragma once
// The native half of quire.vllm.Scheduler: the core, the records of vLLM's requests, and the pieces of vLLM's step objects. It makes these
// pieces fast; the Python adapter of a vLLM version puts them together.
//
// Not thread-safe; the GIL is held throughout, except while a trace or journal is flushed. An exception of a Python seam (connector,
// grammar) passes through the core. The bridge is broken then, and later calls report that.
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

// Options that the adapter passes once. `hooks` implements the Python seams; seams.cpp has the method names.
struct BridgeOptions {
  nb::object hooks;
  nb::list statuses;  // RequestStatus members in quire's order
  OutputTypes outputs;
  bool has_connector = false, has_encoder_connector = false, has_grammar = false, detects_tools = false;
  bool resumed_as_new = false;       // resumed requests are listed among the new ones (vLLM's v2 model runner)
  bool sends_new_token_ids = false;  // new_token_ids are required (pipeline parallelism without async scheduling)
  std::int32_t routed_group = -1;    // cache group of the routed experts; -1: not returned
  TraceOptions trace;                // path empty: off
  std::string connector;             // its name in the trace; empty: none
  JournalOptions journal;            // folder empty: off
  // The grammar manager is asked only by accept and count_valid (DecisionRules::grammar_rejection_ends_request).
  bool uses_grammar_manager = false;
  nb::object prefill_stats;  // PrefillStats if the first output of a request carries one; None: outputs carry counts
};

// The parts of vLLM's ModelRunnerOutput that update() uses.
struct StepOutput {
  nb::handle scheduled;  // the num_scheduled_tokens dict of its plan
  nb::handle index;      // request id -> row
  nb::handle sampled, logprobs, prompt_logprobs, pooled, nans;
  nb::handle finished_sending, finished_receiving, invalid_blocks, failed_receiving;  // the first three are `None` without connector output
};

class Bridge {
 public:
  Bridge(const CoreConfig& config, BridgeOptions options);

  // Adds a new request. `fields` has no id, name, prompt and hashes; they are read from the Python object.
  void add(const nb::object& request, NewRequest fields, bool pass_hashes, StepInput input);
  // `input` is null if no more input will come.
  void continue_session(nb::handle name, const SessionInput* input, StepInput now);
  // Continues a waiting session: its Python request takes the next input.
  void show_session_input(nb::handle name);

  // Returns (pieces of a SchedulerOutput, or `None` if a connector was shown them, has_structured_output, pending_structured_output).
  nb::tuple schedule(StepInput input);
  // Returns (outputs per client, finished sets or None, statistics or None, KV events or None).
  nb::tuple update(const StepOutput& output, StepInput input);
  // Returns the number of outstanding steps before the one that handed out `scheduled`, if all of them scheduled nothing; otherwise 0.
  [[nodiscard]] std::size_t num_idle_before(nb::handle scheduled) const;
  void set_drafts(nb::handle names, nb::handle drafts);
  // Returns the draft tokens that are now in the newest plan: {name: [token, ...]} for the given requests.
  nb::dict set_drafts_in_plan(nb::handle names, nb::handle drafts);
  // Returns [(name, client index), ...] of the requests that were alive. None: all requests.
  nb::list finish(nb::handle names, RequestStatus status, StepInput input);
  bool reset_prefix_cache(bool preempt_running, bool reset_connector, StepInput input);
  bool reset_connector_cache();
  void reset_encoder_cache();
  nb::object make_stats();
  // Returns (steps written, steps dropped) when all steps are on the disk; None without a trace.
  nb::object flush_trace();
  // Returns (path, bytes, why it ended or None) when all bytes are on the disk; None without a journal.
  nb::object flush_journal();

  // Returns {name: Request} with every request refreshed. The dict belongs to the bridge.
  nb::dict requests();
  [[nodiscard]] nb::dict stale_requests() const { return requests_; }
  // Returns the refreshed request; None for an unknown name.
  nb::object request(nb::handle name);
  [[nodiscard]] bool is_prefill_chunk(nb::handle name) const;
  nb::set finished_names();
  nb::list names_of(std::span<const RequestId> ids) const;
  // `which` is 0: running, 1: waiting, 2: skipped waiting.
  [[nodiscard]] nb::list queue_names(int which) const;
  // Returns the requests that the newest step scheduled.
  [[nodiscard]] nb::list last_step_names() const;
  nb::object block_ids(nb::handle name) const;
  Core& core() { return *core_; }
  [[nodiscard]] RequestRecord* lookup(nb::handle name) const;

  // The next functions are for the seams.
  [[nodiscard]] RequestRecord* find(RequestId id) const { return records_.find(id); }
  nb::object refreshed(const RequestView& view);
  nb::object refreshed(RequestId id);
  void refresh_running();
  // Refreshes a request that other code holds. Called after each call that may have changed the request.
  void refresh_if_held(RequestRecord& record);
  void send_plan_to_connector(const StepPlan& plan);
  [[nodiscard]] const BridgeOptions& options() const { return options_; }

 private:
  struct Outstanding {
    const StepPlan* plan;
    nb::object scheduled;  // the dict handed out
  };

  // Runs a call into the core; after an exception from a seam the bridge is broken.
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
  nb::dict requests_;              // name -> Request, in the order of addition
  nb::dict ids_;                   // name -> RequestId value
  std::vector<RequestId> pinned_;  // under CONTINUUM: ended requests that the core still had at the last check
  std::deque<Outstanding> outstanding_;
  std::uint32_t max_plans_;
  std::uint32_t num_groups_;
  bool include_finished_set_;
  bool broken_ = false;

  nb::object pieces_;             // pieces of the plan that is being made
  nb::object scheduled_;          // num_scheduled_tokens dict of that plan
  nb::object last_scheduled_;     // dict of the newest plan; null after a reset that preempted everything
  std::vector<nb::handle> rows_;  // during update(), per scheduled request: its list of sampled tokens, or null
  std::vector<Py_ssize_t> row_numbers_;
  std::vector<std::uint8_t> needed_logprobs_;        // by row: the value before the result was taken
  std::vector<std::vector<BlockId>> routed_blocks_;  // during update(), per scheduled request
  std::vector<std::uint64_t> routed_tokens_;         // during update(), per scheduled request: tokens before the step
  std::vector<std::pair<RequestId, std::int64_t>> nans_;
};

// Returns vLLM's statistics as plain values for the adapter.
nb::object stats_of(const SchedulerStats* stats);
// Returns KV events as ("stored", ...), ("removed", ...), ("cleared",) tuples.
nb::object events_of(std::span<const KvEvent> events);

}  // namespace quire::python
