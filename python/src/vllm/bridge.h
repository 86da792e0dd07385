#pragma once
// The native half of quire.vllm.Scheduler: the core, the records of vLLM's requests, and the pieces of vLLM's step objects. It knows what
// those objects need and makes their parts fast; the Python adapter of a vLLM version puts them together.
//
// Not thread-safe; the GIL is held throughout. An exception of a Python seam (connector, grammar) passes through the core: the bridge is
// broken then and says so.
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
#include "vllm/mirror.h"
#include "vllm/outputs.h"
#include "vllm/record.h"
#include "vllm/seams.h"

namespace quire::python {

// What the adapter gives once. `hooks` answers for the Python seams; seams.cpp has the names.
struct BridgeOptions {
  nb::object hooks;
  nb::list statuses;  // RequestStatus members in quire's order
  OutputTypes outputs;
  bool has_connector = false, has_encoder_connector = false, has_grammar = false, names_tools = false;
  bool fold_resumed = false;       // resumed requests go among the new ones (vLLM's v2 model runner)
  bool carry_tokens = false;       // new_token_ids are wanted (pipeline parallelism without async scheduling)
  std::int32_t routed_group = -1;  // cache group of the routed experts; -1: not returned
  TraceOptions trace;              // path empty: off
  std::string connector;           // as the trace names it; empty: none
  JournalOptions journal;          // folder empty: off
  bool asks_grammars = false;      // a grammar's manager is asked by accept and count_valid alone (DecisionRules::refused_tokens_end)
  nb::object prefill_stats;        // PrefillStats, where the first output of a request carries one; None: outputs carry counts
};

// What update() is given of vLLM's ModelRunnerOutput.
struct StepOutput {
  nb::handle scheduled;  // the num_scheduled_tokens dict of the plan it belongs to
  nb::handle index;      // request id -> row
  nb::handle sampled, logprobs, prompt_logprobs, pooled, nans;
  nb::handle finished_sending, finished_receiving, invalid_blocks, failed_receiving;  // the first three None without connector output
};

class Bridge {
 public:
  Bridge(const CoreConfig& config, BridgeOptions options);

  // Takes a new request. `fields` lacks id, name, prompt and hashes: they are read from the Python object.
  void add(const nb::object& request, NewRequest fields, bool pass_hashes, StepInput input);
  // Null: no more input will come.
  void continue_session(nb::handle name, const SessionInput* input, StepInput now);
  // A waiting session goes on: its Python request takes the next input.
  void show_session_input(nb::handle name);

  // The pieces of a SchedulerOutput; (pieces or None where a connector was shown them, has_structured_output, pending_structured_output).
  nb::tuple schedule(StepInput input);
  // (outputs per client, finished sets or None, statistics or None, kv events or None)
  nb::tuple update(const StepOutput& output, StepInput input);
  // How many idle steps (nothing scheduled) are older than the outstanding one that handed out `scheduled`, with nothing else between; 0
  // where older ones have scheduled something.
  [[nodiscard]] std::size_t num_idle_before(nb::handle scheduled) const;
  void set_drafts(nb::handle names, nb::handle drafts);
  // The drafts that are now in the newest plan: {name: [token, ...]} for those given.
  nb::dict set_drafts_in_plan(nb::handle names, nb::handle drafts);
  // [(name, client index), ...] of those that were alive. None: all.
  nb::list finish(nb::handle names, RequestStatus status, StepInput input);
  bool reset_prefix_cache(bool preempt_running, bool reset_connector, StepInput input);
  bool reset_connector_cache();
  void reset_encoder_cache();
  nb::object make_stats();
  // (steps written, steps left out), when all is on the disk; None without a trace.
  nb::object flush_trace();
  // (path, bytes, why it ended or None), when all is on the disk; None without a journal.
  nb::object flush_journal();

  // {name: Request}, every request refreshed; the dict is the bridge's own.
  nb::dict requests();
  [[nodiscard]] nb::dict stale_requests() const { return requests_; }
  // The request, refreshed; None for an unknown name.
  nb::object request(nb::handle name);
  [[nodiscard]] bool is_prefill_chunk(nb::handle name) const;
  nb::set finished_names();
  nb::list names_of(std::span<const RequestId> ids) const;
  // 0: running, 1: waiting, 2: skipped waiting.
  [[nodiscard]] nb::list queue_names(int which) const;
  // Scheduled in the newest step.
  [[nodiscard]] nb::list last_step_names() const;
  nb::object block_ids(nb::handle name) const;
  Core& core() { return *core_; }
  [[nodiscard]] Record* lookup(nb::handle name) const;

  // For the seams.
  [[nodiscard]] Record* find(RequestId id) const { return records_.find(id); }
  nb::object refreshed(const RequestView& view);
  nb::object refreshed(RequestId id);
  void refresh_running();
  // A request that somebody else holds is true after each call that may have changed it.
  void refresh_if_held(Record& record);
  void show_plan(const StepPlan& plan);
  [[nodiscard]] const BridgeOptions& options() const { return options_; }

 private:
  struct Outstanding {
    const StepPlan* plan;
    nb::object scheduled;  // the dict handed out
  };

  // Runs a call into the core; after an exception from a seam the bridge is broken.
  template <class Call>
  decltype(auto) guarded(Call call) {
    if (broken_) raise_state("the scheduler is broken: an earlier call was left by an exception of a connector or grammar");
    broken_ = true;
    struct Mend {
      bool& broken;
      int depth = std::uncaught_exceptions();
      ~Mend() { broken = std::uncaught_exceptions() > depth; }
    } mend{broken_};
    return call();
  }

  Record& known(nb::handle name) const;
  std::vector<Draft> drafts_of(nb::handle names, nb::handle drafts, std::vector<std::vector<TokenId>>& kept) const;
  [[nodiscard]] RequestView view_of(const Record& record) const;
  void take_session_input(Record& record, const RequestView& view);
  void end(Record& record, RequestStatus status);
  void drop_name(Record& record);
  void drop_if_gone(Record& record);
  void drop_unpinned();
  void drop_if_done(Record& record);

  nb::object pieces_of(const StepPlan& plan);
  nb::object tokens_of(RequestId id) const;
  [[nodiscard]] nb::object empty_blocks() const;
  void prepare_blocks(const StepPlan& plan);

  void require_oldest(nb::handle scheduled) const;
  void collect(const StepPlan& plan, const StepOutput& output, std::vector<SampledToken>& sampled, std::vector<RequestId>& pooled);
  [[nodiscard]] bool is_dropped(const Record& record) const;
  void take_row(const ScheduledRequest& scheduled, const StepOutput& output, std::vector<SampledToken>& sampled,
                std::vector<RequestId>& pooled);
  nb::dict report(const StepOutcome& outcome, const StepOutput& output);
  void report_one(const RequestUpdate& update, const StepOutput& output, nb::dict& outputs);
  nb::object reported_tokens(const RequestUpdate& update) const;
  void show_session_pause(Record& record);
  void note_tokens(Record& record, const RequestUpdate& update);
  void note_prefill(Record& record, const RequestUpdate& update, OutputFields& fields) const;
  nb::object finished_sets(const StepOutcome& outcome);
  void forget(const StepOutcome& outcome);
  nb::object routed_experts(const RequestUpdate& update);

  BridgeOptions options_;
  Seams seams_;
  std::unique_ptr<StepTrace> trace_;      // null: off
  std::unique_ptr<CoreJournal> journal_;  // null: off
  std::unique_ptr<Core> core_;
  RecordTable records_;
  Mirror mirror_;
  OutputMaker outputs_;
  nb::dict requests_;              // name -> Request, in the order of addition
  nb::dict ids_;                   // name -> RequestId value
  std::vector<RequestId> pinned_;  // under CONTINUUM: ended, and not forgotten when we last looked
  std::deque<Outstanding> outstanding_;
  std::uint32_t max_plans_;
  std::uint32_t num_groups_;
  bool include_finished_set_;
  bool broken_ = false;

  nb::object pieces_;             // of the plan in the making
  nb::object scheduled_;          // its dict
  nb::object last_scheduled_;     // the newest plan's; null after a reset that preempted everything
  std::vector<nb::handle> rows_;  // during update(), per scheduled request: its list of sampled tokens; null: none
  std::vector<Py_ssize_t> row_numbers_;
  std::vector<std::uint8_t> wanted_logprobs_;        // by row: as it was before the result was taken
  std::vector<std::vector<BlockId>> routed_blocks_;  // during update(), per scheduled request
  std::vector<std::uint64_t> routed_tokens_;         // the same: tokens before the step's
  std::vector<std::pair<RequestId, std::int64_t>> nans_;
};

// vLLM's statistics as plain values for the adapter.
nb::object stats_of(const SchedulerStats* stats);
// KV events as ("stored", ...), ("removed", ...), ("cleared",) tuples.
nb::object events_of(std::span<const KvEvent> events);

}  // namespace quire::python
