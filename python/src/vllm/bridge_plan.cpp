// Implements schedule(): converts a plan of the core to the parts of a SchedulerOutput.
#include <nanobind/stl/string_view.h>

#include "vllm/bridge.h"
#include "vllm/fast.h"

namespace quire::python {
namespace {

nb::set name_set(const Bridge& bridge, std::span<const RequestId> ids) {
  nb::set out;
  for (const RequestId id : ids) out.add(bridge.find(id)->name);
  return out;
}

// The lists of a CachedRequestData.
struct CachedRequestColumns {
  nb::list req_ids, new_token_ids, new_block_ids, num_computed_tokens, num_output_tokens;
  nb::set resumed;
  nb::dict all_token_ids;

  void append(RequestRecord& record, const ScheduledRequest& scheduled) {
    fast::check(PyList_Append(req_ids.ptr(), record.name.ptr()));
    fast::check(PyList_Append(new_block_ids.ptr(), record.new_blocks.is_valid() ? record.new_blocks.ptr() : Py_None));
    fast::append(num_computed_tokens, std::int64_t{scheduled.num_computed_tokens});
    fast::append(num_output_tokens, std::int64_t{scheduled.num_output_tokens});
    record.new_blocks.reset();
  }
};

}  // namespace

nb::object Bridge::empty_blocks() const {
  nb::object out = fast::steal(PyTuple_New(num_groups_));
  for (std::uint32_t group = 0; group < num_groups_; ++group) PyTuple_SET_ITEM(out.ptr(), group, fast::require_non_null(PyList_New(0)));
  return out;
}

// Collects the block table deltas of each request as the tuple of lists that vLLM sends.
void Bridge::prepare_blocks(const StepPlan& plan) {
  for (const BlockTableDelta& delta : plan.table_deltas) {
    RequestRecord& record = *records_.find(delta.id);
    if (!record.new_blocks.is_valid()) record.new_blocks = empty_blocks();
    if (delta.update != TableUpdate::replace_one)
      fast::extend(nb::handle(PyTuple_GET_ITEM(record.new_blocks.ptr(), delta.group)), delta.blocks);
  }
}

nb::object Bridge::tokens_of(RequestId id) const {
  const auto view = core_->view(id);
  return view ? fast::list(view->tokens) : fast::steal(PyList_New(0));
}

nb::object Bridge::pieces_of(const StepPlan& plan) {
  prepare_blocks(plan);
  CachedRequestColumns cached;
  nb::list fresh;
  nb::dict num_scheduled, drafts, encoder_inputs;
  std::vector<std::pair<RequestRecord*, const ScheduledRequest*>> resumed;
  const auto add_fresh = [&](RequestRecord& record, const ScheduledRequest& scheduled) {
    const nb::object blocks = record.new_blocks.is_valid() ? std::exchange(record.new_blocks, nb::object()) : empty_blocks();
    fresh.append(
        nb::make_tuple(record.request, blocks, scheduled.num_computed_tokens, options_.resumed_as_new ? tokens_of(record.id) : nb::none()));
  };
  for (const ScheduledRequest& scheduled : plan.scheduled) {
    RequestRecord& record = *records_.find(scheduled.id);
    record.num_computed_tokens = std::int64_t{scheduled.num_computed_tokens} + scheduled.num_tokens;
    const nb::object count = fast::steal(PyLong_FromUnsignedLong(scheduled.num_tokens));
    fast::set(num_scheduled, record.name, count);
    if (!scheduled.drafts.empty()) fast::set(drafts, record.name, fast::list(scheduled.drafts));
    if (!scheduled.encoder_inputs.empty()) fast::set(encoder_inputs, record.name, fast::list(scheduled.encoder_inputs));
    switch (scheduled.kind) {
      case ScheduledKind::fresh:
        add_fresh(record, scheduled);
        break;
      case ScheduledKind::resumed:
        resumed.emplace_back(&record, &scheduled);
        break;
      case ScheduledKind::running:
        cached.append(record, scheduled);
        if (options_.sends_new_token_ids) cached.new_token_ids.append(fast::list(scheduled.new_tokens));
        if (scheduled.send_all_tokens) cached.all_token_ids[record.name] = tokens_of(record.id);
    }
  }
  for (const auto& [record, scheduled] : resumed) {
    if (options_.resumed_as_new) {
      add_fresh(*record, *scheduled);
      continue;
    }
    cached.append(*record, *scheduled);
    if (options_.sends_new_token_ids) cached.new_token_ids.append(fast::list(scheduled->new_tokens));
    cached.resumed.add(record->name);
    cached.all_token_ids[record->name] = tokens_of(record->id);
  }
  nb::list freed;
  for (const std::string_view identifier : plan.freed_encoder_outputs) freed.append(nb::cast(identifier));
  scheduled_ = num_scheduled;
  const nb::set finished = name_set(*this, plan.finished);
  const nb::set preempted = name_set(*this, plan.preempted);
  for (const RequestId id : plan.finished) {
    RequestRecord& record = *records_.find(id);
    record.is_listed_in_plan = true;
    drop_finished_record(record);
  }
  return nb::make_tuple(fresh, cached.req_ids, cached.resumed, cached.new_token_ids, cached.all_token_ids, cached.new_block_ids,
                        cached.num_computed_tokens, cached.num_output_tokens, num_scheduled, plan.num_scheduled_tokens, drafts,
                        encoder_inputs, fast::list(plan.num_common_prefix_blocks), finished, freed, preempted,
                        fast::list(plan.blocks_to_zero));
}

void Bridge::send_plan_to_connector(const StepPlan& plan) {
  requests();
  pieces_ = pieces_of(plan);
  options_.hooks.attr("planned")(pieces_);
}

nb::tuple Bridge::schedule(StepInput input) {
  if (outstanding_.size() >= max_plans_)
    raise_state("schedule(): too many steps are outstanding; call update_from_output() for the oldest first");
  pieces_.reset();
  return guarded([&] {
    const StepPlan& plan = core_->schedule(input);
    if (trace_ != nullptr) trace_->planned(plan);
    remove_unpinned();
    const bool shown = pieces_.is_valid();
    pieces_.reset();  // the parts contain references to requests
    for (const ScheduledRequest& scheduled : plan.scheduled) refresh_if_held(*records_.find(scheduled.id));
    // A request that a reset has preempted may have ended since. If a connector was shown the plan, its record is gone.
    for (const RequestId id : plan.preempted)
      if (RequestRecord* record = records_.find(id)) refresh_if_held(*record);
    const nb::object pieces = shown ? nb::none() : pieces_of(plan);
    last_scheduled_ = scheduled_;
    outstanding_.push_back({&plan, std::move(scheduled_)});
    return nb::make_tuple(pieces, plan.has_structured_output, plan.pending_structured_output);
  });
}

}  // namespace quire::python
