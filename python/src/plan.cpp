// Binds plans and outcomes: the work of a step, and its results.
#include "plan.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstdint>

#include "module.h"

namespace quire::python {
namespace {

// Plain copies of the core's structs, with read-only Python attributes.
struct Plan {
  std::uint64_t step;
  nb::list scheduled, admitted, table_deltas, finished, preempted, num_common_prefix_blocks, freed_encoder_outputs, blocks_to_zero,
      transfers, fences;
  std::uint32_t num_scheduled_tokens;
};

struct Scheduled {
  std::uint64_t id;
  std::uint32_t slot, num_computed_tokens, num_tokens;
  std::int32_t num_output_tokens;
  bool samples;
  ScheduledKind kind;
  nb::list drafts, encoder_inputs;
};

struct Admitted {
  std::uint64_t id;
  std::uint32_t slot, num_prompt_tokens;
  nb::list tokens;
};

struct TableDelta {
  std::uint64_t id;
  std::uint32_t slot, group, index;
  TableUpdate update;
  nb::list blocks;
};

struct PlannedTransfer {
  std::uint64_t id, request;
  TransferDirection direction;
  TransferNeed need;
  std::uint32_t group, tier;
  nb::list blocks, places;
};

struct Update {
  std::uint64_t id;
  nb::list tokens;
  bool finished;
  RequestStatus status;
  nb::object reason, stop_token;
  bool session_waits;
  std::int64_t num_cached_tokens;
};

struct Outcome {
  std::uint64_t step;
  nb::list updates, preempted, retired;
  nb::object stats;
};

struct Stats {
  std::uint32_t num_running, num_waiting;
  double kv_cache_usage, encoder_cache_usage;
  std::uint64_t prefix_requests, prefix_queries, prefix_hits;
};

struct RequestInfo {
  std::uint64_t id;
  RequestStatus status;
  nb::list tokens, draft_tokens;
  std::uint32_t num_prompt_tokens, num_computed_tokens;
  std::int32_t num_output_placeholders;
  std::uint32_t num_preemptions;
  std::int64_t num_cached_tokens;
  nb::list names;
};

void bind_enums(nb::module_& m) {
  nb::enum_<RequestStatus>(m, "RequestStatus", "State of a request. Every value after PREEMPTED is a finished state.")
      .value("WAITING", RequestStatus::waiting)
      .value("WAITING_FOR_GRAMMAR", RequestStatus::waiting_for_grammar)
      .value("WAITING_FOR_REMOTE_KV", RequestStatus::waiting_for_remote_kv)
      .value("WAITING_FOR_INPUT", RequestStatus::waiting_for_input)
      .value("RUNNING", RequestStatus::running)
      .value("PREEMPTED", RequestStatus::preempted)
      .value("FINISHED_STOPPED", RequestStatus::finished_stopped)
      .value("FINISHED_LENGTH", RequestStatus::finished_length)
      .value("FINISHED_ABORTED", RequestStatus::finished_aborted)
      .value("FINISHED_IGNORED", RequestStatus::finished_ignored)
      .value("FINISHED_ERROR", RequestStatus::finished_error)
      .value("FINISHED_REPETITION", RequestStatus::finished_repetition);
  nb::enum_<FinishReason>(m, "FinishReason", "Why a request ended.")
      .value("STOP", FinishReason::stop, "A stop token or EOS was sampled.")
      .value("LENGTH", FinishReason::length, "max_tokens or max_model_len was reached.")
      .value("ABORT", FinishReason::abort, "finish() ended the request.")
      .value("ERROR", FinishReason::error, "Its external blocks could not be loaded.")
      .value("REPETITION", FinishReason::repetition, "The output repeats a pattern.");
  nb::enum_<ScheduledKind>(m, "ScheduledKind", "How a request came into the plan.")
      .value("FRESH", ScheduledKind::fresh, "Scheduled for the first time.")
      .value("RESUMED", ScheduledKind::resumed, "Scheduled again after a preemption.")
      .value("RUNNING", ScheduledKind::running, "Running before this plan.");
  nb::enum_<TableUpdate>(m, "TableUpdate", "Kind of a change of a block table.")
      .value("APPEND", TableUpdate::append)
      .value("REPLACE_ALL", TableUpdate::replace_all)
      .value("REPLACE_ONE", TableUpdate::replace_one);
}

void bind_plan_parts(nb::module_& m) {
  nb::class_<Scheduled>(m, "Scheduled", "Tokens [num_computed_tokens, num_computed_tokens + num_tokens) of a request run in this step.")
      .def_ro("id", &Scheduled::id)
      .def_ro("slot", &Scheduled::slot, "Row of the worker's batch for this request.")
      .def_ro("num_computed_tokens", &Scheduled::num_computed_tokens)
      .def_ro("num_tokens", &Scheduled::num_tokens)
      .def_ro("samples", &Scheduled::samples, "A token is sampled after the last scheduled token; apply() needs it.")
      .def_ro("kind", &Scheduled::kind)
      .def_ro("num_output_tokens", &Scheduled::num_output_tokens, "Number of output tokens, including placeholders.")
      .def_ro("drafts", &Scheduled::drafts, "Draft tokens, the last of the scheduled tokens; -1: the worker's own proposals.")
      .def_ro("encoder_inputs", &Scheduled::encoder_inputs, "Indices of the multimodal inputs that are encoded in this step.");
  nb::class_<Admitted>(m, "Admitted", "A request that is added to the worker's batch. Its block table starts empty.")
      .def_ro("id", &Admitted::id)
      .def_ro("slot", &Admitted::slot)
      .def_ro("tokens", &Admitted::tokens, "Prompt, then the outputs known so far.")
      .def_ro("num_prompt_tokens", &Admitted::num_prompt_tokens);
  nb::class_<TableDelta>(m, "TableDelta", "A change of a request's block table in one cache group.")
      .def_ro("id", &TableDelta::id)
      .def_ro("slot", &TableDelta::slot)
      .def_ro("group", &TableDelta::group)
      .def_ro("update", &TableDelta::update)
      .def_ro("index", &TableDelta::index, "Index of the replaced entry, for REPLACE_ONE.")
      .def_ro("blocks", &TableDelta::blocks);
  nb::class_<PlannedTransfer>(m, "Transfer", "A transfer of the connector that begins with this plan.")
      .def_ro("id", &PlannedTransfer::id)
      .def_ro("request", &PlannedTransfer::request, "Id of the request that the transfer is for.")
      .def_ro("direction", &PlannedTransfer::direction)
      .def_ro("need", &PlannedTransfer::need)
      .def_ro("group", &PlannedTransfer::group)
      .def_ro("tier", &PlannedTransfer::tier)
      .def_ro("blocks", &PlannedTransfer::blocks)
      .def_ro("places", &PlannedTransfer::places, "Slot of each block, in the connector's own numbers.");
}

void bind_plan_class(nb::module_& m) {
  nb::class_<Plan>(m, "Plan", "The work of one step for the worker. A copy that does not change.")
      .def_ro("step", &Plan::step, "Number of the step, counted from 0.")
      .def_ro("scheduled", &Plan::scheduled, "Scheduled objects, in order: running requests first, then admitted requests.")
      .def_ro("admitted", &Plan::admitted, "Admitted objects: new or resumed requests.")
      .def_ro("table_deltas", &Plan::table_deltas, "TableDelta objects: changes of block tables.")
      .def_ro("num_scheduled_tokens", &Plan::num_scheduled_tokens, "Number of tokens of all scheduled requests.")
      .def_ro("finished", &Plan::finished, "Ids of requests that ended since the previous plan.")
      .def_ro("preempted", &Plan::preempted, "Ids of requests that this plan preempts, in order.")
      .def_ro("num_common_prefix_blocks", &Plan::num_common_prefix_blocks,
              "Number of blocks that all running requests share, per cache group.")
      .def_ro("freed_encoder_outputs", &Plan::freed_encoder_outputs, "Identifiers of encoder outputs that the worker may forget.")
      .def_ro("blocks_to_zero", &Plan::blocks_to_zero, "Blocks that must be zeroed before use.")
      .def_ro("transfers", &Plan::transfers, "Transfer objects. Stores read what earlier steps wrote; loads fill blocks.")
      .def_ro("fences", &Plan::fences, "Ids of transfers that must end before this step writes and before its loads begin.")
      .def("__repr__", [](const Plan& self) {
        return nb::str("Plan(step={}, {} requests, {} tokens)").format(self.step, nb::len(self.scheduled), self.num_scheduled_tokens);
      });
}

void bind_outcome(nb::module_& m) {
  nb::class_<Update>(m, "Update", "The effect of a result on one request.")
      .def_ro("id", &Update::id)
      .def_ro("tokens", &Update::tokens, "Tokens appended by this step.")
      .def_ro("finished", &Update::finished)
      .def_ro("status", &Update::status)
      .def_ro("reason", &Update::reason, "FinishReason; None while the request continues.")
      .def_ro("stop_token", &Update::stop_token, "Stop token that ended the request, or None.")
      .def_ro("session_waits", &Update::session_waits, "The input of a streaming session ended, not the request.")
      .def_ro("num_cached_tokens", &Update::num_cached_tokens, "Number of prompt tokens found in a cache at first admission.")
      .def("__repr__",
           [](const Update& self) { return nb::str("Update(id={}, tokens={}, finished={})").format(self.id, self.tokens, self.finished); });
  nb::class_<Stats>(m, "Stats", "Statistics. Counters cover the time since the previous outcome.")
      .def_ro("num_running", &Stats::num_running)
      .def_ro("num_waiting", &Stats::num_waiting)
      .def_ro("kv_cache_usage", &Stats::kv_cache_usage, "Share of blocks in use, 0 to 1.")
      .def_ro("encoder_cache_usage", &Stats::encoder_cache_usage, "Share of the encoder cache in use, 0 to 1.")
      .def_ro("prefix_requests", &Stats::prefix_requests, "Number of look-ups in the prefix cache.")
      .def_ro("prefix_queries", &Stats::prefix_queries, "Number of tokens looked up.")
      .def_ro("prefix_hits", &Stats::prefix_hits, "Number of tokens found.");
  nb::class_<Outcome>(m, "Outcome", "The effects of a result. A copy that does not change.")
      .def_ro("step", &Outcome::step)
      .def_ro("updates", &Outcome::updates, "Update objects, in the plan's order. A request to which nothing happened has none.")
      .def_ro("preempted", &Outcome::preempted, "Ids of requests that were preempted when this step was planned.")
      .def_ro("retired", &Outcome::retired, "Ids to which the core no longer refers.")
      .def_ro("stats", &Outcome::stats, "Stats, or None without log_stats.");
}

nb::object stats_of(const SchedulerStats* stats) {
  if (stats == nullptr) return nb::none();
  return nb::cast(Stats{stats->num_running, stats->num_waiting, stats->kv_cache_usage, stats->encoder_cache_usage,
                        stats->prefix_cache.requests, stats->prefix_cache.queries, stats->prefix_cache.hits});
}

}  // namespace

nb::object to_python(const StepPlan& plan) {
  Plan out;
  out.step = plan.step.value;
  out.num_scheduled_tokens = plan.num_scheduled_tokens;
  for (const ScheduledRequest& r : plan.scheduled) {
    out.scheduled.append(nb::cast(Scheduled{r.id.value, r.slot.value, r.num_computed_tokens, r.num_tokens, r.num_output_tokens, r.samples,
                                            r.kind, list_of(r.drafts), list_of(r.encoder_inputs)}));
  }
  for (const AdmittedRequest& r : plan.admitted)
    out.admitted.append(nb::cast(Admitted{r.id.value, r.slot.value, r.num_prompt_tokens, list_of(r.tokens)}));
  for (const BlockTableDelta& d : plan.table_deltas)
    out.table_deltas.append(nb::cast(TableDelta{d.id.value, d.slot.value, d.group, d.index, d.update, list_of_ids(d.blocks)}));
  out.finished = list_of_ids(plan.finished);
  out.preempted = list_of_ids(plan.preempted);
  out.num_common_prefix_blocks = list_of(plan.num_common_prefix_blocks);
  out.freed_encoder_outputs = list_of(plan.freed_encoder_outputs);
  out.blocks_to_zero = list_of_ids(plan.blocks_to_zero);
  for (const Transfer& t : plan.transfers) {
    out.transfers.append(nb::cast(
        PlannedTransfer{t.id.value, t.request.value, t.direction, t.need, t.group, t.tier, list_of_ids(t.blocks), list_of(t.places)}));
  }
  out.fences = list_of_ids(plan.fences);
  return nb::cast(std::move(out));
}

nb::object to_python(const StepOutcome& outcome) {
  Outcome out;
  out.step = outcome.step.value;
  out.stats = stats_of(outcome.stats);
  for (const RequestUpdate& u : outcome.updates) {
    out.updates.append(nb::cast(Update{u.id.value, list_of(u.tokens), u.finished, u.status, u.finished ? nb::cast(u.reason) : nb::none(),
                                       u.stop_token ? nb::cast(*u.stop_token) : nb::none(), u.session_waits, u.num_cached_tokens}));
  }
  out.preempted = list_of_ids(outcome.preempted);
  out.retired = list_of_ids(outcome.retired);
  return nb::cast(std::move(out));
}

nb::object to_python(const RequestView& v) {
  constexpr std::size_t kNameBytes = 32;
  nb::list names;
  for (std::size_t at = 0; at < v.block_hashes.size(); at += kNameBytes)
    names.append(nb::bytes(reinterpret_cast<const char*>(&v.block_hashes[at]), kNameBytes));
  return nb::cast(RequestInfo{v.id.value, v.status, list_of(v.tokens), list_of(v.draft_tokens), v.num_prompt_tokens, v.num_computed_tokens,
                              v.num_output_placeholders, v.num_preemptions, v.num_cached_tokens, names});
}

void bind_plan(nb::module_& m) {
  bind_enums(m);
  bind_plan_parts(m);
  bind_plan_class(m);
  bind_outcome(m);
  nb::class_<RequestInfo>(m, "RequestInfo", "The state of one request at the time of the call.")
      .def_ro("id", &RequestInfo::id)
      .def_ro("status", &RequestInfo::status)
      .def_ro("tokens", &RequestInfo::tokens, "Prompt, then outputs.")
      .def_ro("draft_tokens", &RequestInfo::draft_tokens)
      .def_ro("num_prompt_tokens", &RequestInfo::num_prompt_tokens)
      .def_ro("num_computed_tokens", &RequestInfo::num_computed_tokens)
      .def_ro("num_output_placeholders", &RequestInfo::num_output_placeholders, "Number of tokens in flight, with async scheduling.")
      .def_ro("num_preemptions", &RequestInfo::num_preemptions)
      .def_ro("num_cached_tokens", &RequestInfo::num_cached_tokens,
              "Number of tokens found in a cache at first admission; -1: not admitted yet.")
      .def_ro("names", &RequestInfo::names,
              "Hashes of its full blocks in order, 32 bytes each. Requests with equal prefixes have equal hashes.");
}

}  // namespace quire::python
