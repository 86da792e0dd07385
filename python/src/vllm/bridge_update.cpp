// Implements update(): converts vLLM's ModelRunnerOutput to a result for the core, and the core's outcome to EngineCoreOutputs.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>

#include "vllm/bridge.h"
#include "vllm/fast.h"

namespace quire::python {
namespace {

// Returns the value for `name` in a dict or None; null if no value exists.
nb::handle get(nb::handle dict, nb::handle name) {
  if (dict.is_none()) return {};
  PyObject* found = PyDict_GetItemWithError(dict.ptr(), name.ptr());
  if (found == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
  return nb::handle(found);
}

nb::handle item(nb::handle list, Py_ssize_t index, const char* field) {
  if (!PyList_Check(list.ptr()) || index < 0 || index >= PyList_GET_SIZE(list.ptr()))
    throw nb::value_error((std::string(field) + ": has no row " + std::to_string(index) + ", to which req_id_to_index refers").c_str());
  return nb::handle(PyList_GET_ITEM(list.ptr(), index));
}

bool has_items(nb::handle list) {
  return !list.is_none() && PyObject_IsTrue(list.ptr()) == 1;
}

}  // namespace

void Bridge::require_oldest(nb::handle scheduled) const {
  if (outstanding_.empty()) raise_state("update_from_output(): no step is outstanding; call schedule() first");
  const nb::object& oldest = outstanding_.front().scheduled;
  if (!oldest.is(scheduled) && !oldest.equal(scheduled))
    throw nb::value_error(
        "scheduler_output: does not belong to the oldest outstanding step; call update_from_output() in the order of schedule()");
}

std::size_t Bridge::num_idle_before(nb::handle scheduled) const {
  std::size_t count = 0;
  for (const Outstanding& step : outstanding_) {
    if (step.scheduled.is(scheduled)) return count;
    if (!step.plan->scheduled.empty()) break;
    ++count;
  }
  return 0;
}

// Returns whether tokens in flight of this request are ignored: in vLLM 0.32.0 after a reset has preempted it.
bool Bridge::is_dropped(const RequestRecord& record) const {
  const auto view = core_->view(record.id);
  return view && view->drops_stale && view->num_stale_tokens > 0;
}

void Bridge::collect_row(const ScheduledRequest& scheduled, const StepOutput& output, std::vector<SampledToken>& sampled,
                         std::vector<RequestId>& pooled) {
  rows_.emplace_back();
  row_numbers_.push_back(-1);
  RequestRecord* record = records_.find(scheduled.id);
  needed_logprobs_.push_back(record->needs_logprobs ? 1 : 0);
  if (record->finished) return;
  const nb::handle row = get(output.index, record->name);
  if (!row.is_valid())
    throw nb::key_error(("req_id_to_index: does not contain the scheduled request " + nb::cast<std::string>(record->name)).c_str());
  const Py_ssize_t number = PyLong_AsSsize_t(row.ptr());
  if (const nb::handle found = get(output.nans, record->name); found.is_valid() && !is_dropped(*record))
    nans_.emplace_back(record->id, nb::cast<std::int64_t>(found));
  row_numbers_.back() = number;
  if (has_items(output.pooled) && record->pooling && !item(output.pooled, number, "pooler_output").is_none()) pooled.push_back(record->id);
  if (!has_items(output.sampled)) return;
  rows_.back() = item(output.sampled, number, "sampled_token_ids");
  const std::size_t before = sampled.size();
  fast::append_tokens(rows_.back(), [&](TokenId token) { sampled.push_back({record->id, token}); });
  const std::size_t count = sampled.size() - before;
  if (!scheduled.drafts.empty() && count > 0)
    record->num_computed_tokens -= static_cast<std::int64_t>(scheduled.drafts.size() + 1) - static_cast<std::int64_t>(count);
}

void Bridge::collect_results(const StepPlan& plan, const StepOutput& output, std::vector<SampledToken>& sampled,
                             std::vector<RequestId>& pooled) {
  rows_.clear();
  row_numbers_.clear();
  needed_logprobs_.clear();
  routed_blocks_.clear();
  routed_tokens_.clear();
  nans_.clear();
  for (const ScheduledRequest& scheduled : plan.scheduled) {
    collect_row(scheduled, output, sampled, pooled);
    if (options_.routed_group >= 0) {
      const auto blocks = core_->blocks(scheduled.id, static_cast<std::uint32_t>(options_.routed_group));
      routed_blocks_.emplace_back(blocks.begin(), blocks.end());
      routed_tokens_.push_back(records_.find(scheduled.id)->num_tokens);
    }
  }
}

// Returns the worker's own list, as vLLM does, cut where the request stopped.
nb::object Bridge::reported_tokens(const RequestUpdate& update) const {
  const nb::handle row = update.result_index < rows_.size() ? rows_[update.result_index] : nb::handle();
  const auto count = static_cast<Py_ssize_t>(update.tokens.size());
  if (!row.is_valid() || (count == 0 && PyList_GET_SIZE(row.ptr()) > 0)) return fast::list(update.tokens);
  if (PyList_GET_SIZE(row.ptr()) > count) fast::check(PyList_SetSlice(row.ptr(), count, PyList_GET_SIZE(row.ptr()), nullptr));
  return nb::borrow(row);
}

void Bridge::add_tokens(RequestRecord& record, const RequestUpdate& update) {
  if (!record.has_next_input) {
    record.num_tokens += update.tokens.size();
    const std::uint64_t held = record.num_mirrored_tokens + record.unmirrored_outputs.size();
    if (held < record.num_tokens) {
      const auto news = update.tokens.last(static_cast<std::size_t>(record.num_tokens - held));
      record.unmirrored_outputs.insert(record.unmirrored_outputs.end(), news.begin(), news.end());
    }
  }
  if (update.stop_token && update.finished && update.status == RequestStatus::finished_stopped)
    record.stop_reason = nb::int_(*update.stop_token);
  else if (update.finished && update.status == RequestStatus::finished_repetition)
    record.stop_reason = nb::str("repetition_detected");
}

// Sets vLLM's PrefillStats: tokens of the prompt, computed, cached, cached locally, cached externally, and added to the cache.
void Bridge::add_prefill_stats(RequestRecord& record, const RequestUpdate& update, OutputFields& fields) const {
  if (options_.prefill_stats.is_none() || record.num_prefill_tokens < 0) return;
  const std::int64_t prompt = std::exchange(record.num_prefill_tokens, -1);
  const std::int64_t cached = std::max<std::int64_t>(update.num_cached_tokens, 0);
  const std::int64_t created = std::max<std::int64_t>(std::min(std::int64_t{update.num_hashed_tokens}, prompt) - cached, 0);
  const std::int64_t external = update.num_external_computed_tokens;
  fields[OutputFields::prefill_stats] = options_.prefill_stats(prompt, prompt - cached, cached, cached - external, external, created);
}

nb::object Bridge::routed_experts(const RequestUpdate& update) {
  if (options_.routed_group < 0 || update.result_index >= routed_blocks_.size()) return {};
  const std::span<const BlockId> blocks = routed_blocks_[update.result_index];
  const std::uint64_t num_tokens = routed_tokens_[update.result_index] + update.tokens.size();
  return options_.hooks.attr("routed_experts")(fast::list(blocks), num_tokens - 1);
}

// Refreshes the Python request of a session after one of its inputs has ended.
void Bridge::mirror_paused_session(RequestRecord& record) {
  const RequestView view = view_of(record);
  if (!std::exchange(record.has_next_input, false) && view.status != RequestStatus::waiting_for_input) {
    take_session_input(record, view);
    record.has_next_input = false;
  } else {
    request_mirror_.update(record, view);
  }
}

void Bridge::append_output(const RequestUpdate& update, const StepOutput& output, nb::dict& outputs) {
  RequestRecord& record = *records_.find(update.id);
  add_tokens(record, update);
  const Py_ssize_t row = update.result_index < row_numbers_.size() ? row_numbers_[update.result_index] : -1;
  const nb::object tokens = reported_tokens(update);
  OutputFields fields;
  if (update.finished) {
    fields[OutputFields::finish_reason] = outputs_.finish_reason(update.reason);
    fields[OutputFields::routed_experts] = routed_experts(update);
  }
  // Reads the value before mirror_paused_session() sets the parameters of the session's next input. vLLM 0.19.0 reads the value after the
  // next input has set them.
  const bool needed_logprobs = row >= 0 && needed_logprobs_[update.result_index] != 0;
  if (update.session_waits) mirror_paused_session(record);
  if (row >= 0) {
    if ((options_.uses_grammar_manager ? needed_logprobs : record.needs_logprobs) && has_items(output.logprobs))
      fields[OutputFields::new_logprobs] = output.logprobs.attr("slice_request")(row, update.tokens.size());
    if (const nb::handle found = get(output.prompt_logprobs, record.name))
      fields[OutputFields::new_prompt_logprobs_tensors] = nb::borrow(found);
    if (has_items(output.pooled)) fields[OutputFields::pooling_output] = nb::borrow(item(output.pooled, row, "pooler_output"));
    fields[OutputFields::kv_transfer_params] = std::exchange(record.kv_transfer_params, nb::object());
    fields[OutputFields::stop_reason] = record.stop_reason;
    add_prefill_stats(record, update, fields);
    if (options_.prefill_stats.is_none())
      fields[OutputFields::num_external_computed_tokens] =
          update.num_external_computed_tokens != 0 ? nb::object(nb::int_(update.num_external_computed_tokens)) : nb::object();
    if (record.num_nans != 0) fields[OutputFields::num_nans_in_logits] = nb::int_(record.num_nans);
  }
  fields[OutputFields::trace_headers] = record.trace_headers;
  if (options_.prefill_stats.is_none() && update.num_cached_tokens != 0)
    fields[OutputFields::num_cached_tokens] = fast::steal(PyLong_FromLongLong(update.num_cached_tokens));
  if (!update.events.empty()) fields[OutputFields::events] = outputs_.events(update.events);
  const nb::object client = nb::int_(record.client_index);
  nb::handle list = get(outputs, client);
  if (!list.is_valid()) {
    outputs[client] = nb::list();
    list = get(outputs, client);
  }
  const nb::object made = outputs_.make(record.name, tokens, fields);
  fast::check(PyList_Append(list.ptr(), made.ptr()));
  if (update.finished && !update.session_waits)
    end(record, update.reason == FinishReason::error ? RequestStatus::finished_error : update.status);
}

nb::dict Bridge::report(const StepOutcome& outcome, const StepOutput& output) {
  nb::dict outputs;
  for (const RequestUpdate& update : outcome.updates) append_output(update, output, outputs);
  return outputs;
}

nb::object Bridge::finished_sets(const StepOutcome& outcome) {
  if (outcome.finished_sets.empty()) return nb::none();
  nb::dict out;
  for (const FinishedSet& set : outcome.finished_sets) {
    nb::set names;
    for (const RequestId id : set.ids) {
      RequestRecord& record = *records_.find(id);
      names.add(record.name);
      record.reported = true;
    }
    out[nb::int_(set.client_index)] = names;
  }
  return out;
}

void Bridge::drop_retired(const StepOutcome& outcome) {
  for (const RequestId id : outcome.retired) {
    if (RequestRecord* record = records_.find(id)) {
      record->retired = true;
      drop_finished_record(*record);
    }
  }
  for (const FinishedSet& set : outcome.finished_sets) {
    for (const RequestId id : set.ids)
      if (RequestRecord* record = records_.find(id)) drop_finished_record(*record);
  }
}

nb::tuple Bridge::update(const StepOutput& output, StepInput input) {
  require_oldest(output.scheduled);
  const auto ids_of = [&](nb::handle names, const char* field) {
    std::vector<RequestId> ids;
    for (nb::handle name : names) {
      const RequestRecord* record = lookup(name);
      if (record == nullptr) throw nb::key_error((std::string(field) + ": no request " + nb::cast<std::string>(nb::repr(name))).c_str());
      ids.push_back(record->id);
    }
    return ids;
  };
  std::vector<SampledToken> sampled;
  std::vector<RequestId> pooled, sent, received, failed;
  std::vector<BlockId> invalid;
  const StepPlan& plan = *outstanding_.front().plan;
  collect_results(plan, output, sampled, pooled);
  StepResult result;
  result.step = plan.step;
  result.sampled = sampled;
  result.pooled = pooled;
  if (!output.finished_sending.is_none()) {
    result.has_connector_output = true;
    sent = ids_of(output.finished_sending, "finished_sending");
    received = ids_of(output.finished_receiving, "finished_recving");
    for (nb::handle block : output.invalid_blocks) invalid.push_back(BlockId{nb::cast<std::uint32_t>(block)});
    result.finished_sending = sent;
    result.finished_receiving = received;
    result.invalid_blocks = invalid;
    // Requests that were removed in the meantime are skipped.
    for (nb::handle name : output.failed_receiving)
      if (const RequestRecord* record = lookup(name)) failed.push_back(record->id);
    result.failed_receiving = failed;
  }
  const StepOutcome& outcome = *value_or_raise(guarded([&] { return core_->apply(result, input); }));
  outstanding_.pop_front();
  for (const auto& [id, count] : nans_)
    if (std::ranges::find(outcome.failed_loads, id) == outcome.failed_loads.end()) records_.find(id)->num_nans = count;
  const nb::dict outputs = report(outcome, output);
  for (const ScheduledRequest& scheduled : plan.scheduled)
    if (RequestRecord* record = records_.find(scheduled.id)) refresh_if_held(*record);
  for (const auto& transferred : {received, sent})
    for (const RequestId id : transferred) remove_if_core_forgot(*records_.find(id));
  remove_unpinned();
  const nb::object sets = finished_sets(outcome);
  const nb::object stats = stats_of(outcome.stats);
  const nb::object events = events_of(outcome.kv_events);
  drop_retired(outcome);
  rows_.clear();
  return nb::make_tuple(outputs, sets, stats, events);
}

}  // namespace quire::python
