// Adds and ends requests: their records, their names, and the content of vLLM's dict of requests.
#include "vllm/bridge.h"

#include <nanobind/stl/string.h>

#include <exception>
#include <string>

#include "vllm/fast.h"

namespace quire::python {
namespace {

// Returns the size of a block hash, or 0 if the core computes no block hashes.
std::uint32_t hash_bytes_of(const CoreConfig& config, bool has_connector) {
  if (!config.prefix_cache.enable_prefix_caching && !has_connector) return 0;
  return config.prefix_cache.hash == HashAlgorithm::xxhash || config.prefix_cache.hash == HashAlgorithm::xxhash_cbor ? 16 : 32;
}

std::vector<TokenId> tokens_in(nb::handle list) {
  std::vector<TokenId> out;
  fast::append_tokens(list, [&](TokenId token) { out.push_back(token); });
  return out;
}

std::vector<std::uint8_t> concatenate_hashes(nb::handle hashes) {
  std::vector<std::uint8_t> out;
  for (nb::handle hash : hashes) {
    char* data = nullptr;
    Py_ssize_t size = 0;
    fast::check(PyBytes_AsStringAndSize(hash.ptr(), &data, &size));
    out.insert(out.end(), data, data + size);
  }
  return out;
}

std::unique_ptr<StepTrace> create_trace(const BridgeOptions& options, const CoreConfig& config) {
  if (options.trace.path.empty()) return nullptr;
  return value_or_raise(StepTrace::create(options.trace, config, options.connector));
}

CoreSeams with_events(CoreSeams seams, StepTrace* trace) {
  seams.events = trace;
  return seams;
}

std::unique_ptr<CoreJournal> create_journal(const BridgeOptions& options, const CoreConfig& config, const CoreSeams& seams) {
  if (options.journal.folder.empty()) return nullptr;
  return value_or_raise(CoreJournal::create(options.journal, config, seams));
}

}  // namespace

Bridge::Bridge(const CoreConfig& config, BridgeOptions options)
    : options_(std::move(options)),
      seams_(*this),
      trace_(create_trace(options_, config)),
      journal_(create_journal(options_, config, with_events(seams_.of_core(), trace_.get()))),
      core_(value_or_raise(Core::create(config, journal_ != nullptr ? journal_->seams() : with_events(seams_.of_core(), trace_.get())))),
      request_mirror_(options_.statuses, hash_bytes_of(config, options_.has_connector), DecisionRules(config.decisions, config.fixes)),
      outputs_(options_.outputs),
      max_plans_(config.limits.max_outstanding_plans),
      num_groups_(static_cast<std::uint32_t>(config.kv.groups.size())),
      include_finished_set_(config.report.include_finished_set) {
  if (trace_ != nullptr) trace_->follow(*core_);
}

RequestRecord* Bridge::lookup(nb::handle name) const {
  PyObject* id = PyDict_GetItemWithError(ids_.ptr(), name.ptr());
  if (id == nullptr) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return nullptr;
  }
  return records_.find(RequestId{PyLong_AsUnsignedLongLong(id)});
}

RequestRecord& Bridge::record_or_raise(nb::handle name) const {
  RequestRecord* record = lookup(name);
  if (record == nullptr) throw nb::key_error(("no request " + nb::cast<std::string>(nb::repr(name))).c_str());
  return *record;
}

void Bridge::add(const nb::object& request, NewRequest fields, bool pass_hashes, StepInput input) {
  const nb::object name = request.attr("request_id");
  if (lookup(name) != nullptr)
    throw nb::value_error(
        ("request_id: " + nb::cast<std::string>(name) + " already exists; finish that request first or use another id").c_str());
  RequestRecord& record = records_.make();
  try {
    record.name = name;
    record.request = request;
    record.all_tokens = request.attr("_all_token_ids");
    record.output_tokens = request.attr("_output_token_ids");
    record.block_hashes = request.attr("block_hashes");
    record.client_index = fields.client_index;
    record.pooling = fields.pooling;
    record.structured = fields.structured_output;
    record.session = fields.resumable;
    record.mirrored.status = static_cast<RequestStatus>(nb::cast<int>(request.attr("status")) - 1);
    const std::vector<TokenId> prompt = tokens_in(record.all_tokens);
    const std::vector<std::uint8_t> hashes = pass_hashes ? concatenate_hashes(record.block_hashes) : std::vector<std::uint8_t>{};
    const auto text = nb::cast<std::string>(name);
    record.num_tokens = record.num_mirrored_tokens = prompt.size();
    record.num_prompt_tokens = static_cast<std::uint32_t>(prompt.size());
    record.num_prefill_tokens = record.num_prompt_tokens;
    fields.id = record.id;
    fields.name = text;
    fields.prompt = prompt;
    fields.block_hashes = hashes;
    value_or_raise(guarded([&] { return core_->add(fields, input); }));
  } catch (...) {
    records_.drop(record.id);
    throw;
  }
  requests_[name] = request;
  ids_[name] = record.id.value;
}

void Bridge::continue_session(nb::handle name, const SessionInput* input, StepInput now) {
  RequestRecord& record = record_or_raise(name);
  value_or_raise(guarded([&] { return core_->continue_session(record.id, input, now); }));
}

RequestView Bridge::view_of(const RequestRecord& record) const {
  const std::optional<RequestView> view = core_->view(record.id);
  if (!view) raise_state("the core no longer has a request that the scheduler still has");
  return *view;
}

void Bridge::show_session_input(nb::handle name) {
  RequestRecord& record = record_or_raise(name);
  take_session_input(record, view_of(record));
  record.has_next_input = false;
}

// Applies a session's next input to the Python request, as vLLM's _update_request_as_session does: the hook sets the parameters of the
// input, and the tokens come from the core.
void Bridge::take_session_input(RequestRecord& record, const RequestView& view) {
  record.needs_logprobs = nb::cast<bool>(options_.hooks.attr("session_input_taken")(record.request, view.num_prompt_tokens));
  record.has_next_input = true;
  record.num_prompt_tokens = view.num_prompt_tokens;
  request_mirror_.update_session(record, view);
}

void Bridge::remove_from_requests(RequestRecord& record) {
  // If another request with this name was added since, it keeps its entry.
  if (lookup(record.name) == &record) {
    fast::check(PyDict_DelItem(requests_.ptr(), record.name.ptr()));
    fast::check(PyDict_DelItem(ids_.ptr(), record.name.ptr()));
  }
  record.request.reset();
  record.all_tokens.reset();
  record.output_tokens.reset();
  record.block_hashes.reset();
}

void Bridge::drop_finished_record(RequestRecord& record) {
  if (record.retired && record.is_listed_in_plan && (record.reported || !include_finished_set_) && !record.request.is_valid())
    records_.drop(record.id);
}

void Bridge::end(RequestRecord& record, RequestStatus status) {
  record.finished = true;
  if (Py_REFCNT(record.request.ptr()) > 2)  // other code holds the request, besides the record and the dict
    request_mirror_.update_finished(record, status);
  remove_if_core_forgot(record);
  if (options_.detects_tools && record.request.is_valid()) pinned_.push_back(record.id);
}

// Removes a request that the core has removed. As vLLM does, keeps a finished request while a transfer or a pin holds its blocks.
void Bridge::remove_if_core_forgot(RequestRecord& record) {
  if (record.finished && record.request.is_valid() && !core_->view(record.id)) remove_from_requests(record);
}

// Removes the requests whose pins have ended. Called after each call that may end pins.
void Bridge::remove_unpinned() {
  std::erase_if(pinned_, [this](RequestId id) {
    RequestRecord* record = records_.find(id);
    if (record != nullptr) remove_if_core_forgot(*record);
    return record == nullptr || !record->request.is_valid();
  });
}

nb::list Bridge::finish(nb::handle names, RequestStatus status, StepInput input) {
  std::vector<nb::object> wanted;
  for (nb::handle name : names.is_none() ? nb::handle(requests_) : names) wanted.push_back(nb::borrow(name));
  nb::list out;
  for (const nb::object& name : wanted) {
    RequestRecord* record = lookup(name);
    if (record == nullptr || record->finished) continue;
    refreshed(record->id);
    const FinishEffect effect = guarded([&] { return core_->finish(record->id, status, input); });
    if (effect == FinishEffect::unknown) continue;
    record->retired = effect == FinishEffect::retired;
    out.append(nb::make_tuple(name, record->client_index));
    end(*record, status);
  }
  remove_unpinned();
  return out;
}

bool Bridge::reset_prefix_cache(bool preempt_running, bool reset_connector, StepInput input) {
  if (preempt_running) last_scheduled_.reset();
  const bool done = value_or_raise(guarded([&] { return core_->reset_prefix_cache(preempt_running, reset_connector, input); }));
  if (preempt_running) requests();
  remove_unpinned();
  return done;
}

void Bridge::reset_encoder_cache() {
  guarded([&] { core_->reset_encoder_cache(); });
}

bool Bridge::reset_connector_cache() {
  return guarded([&] { return core_->reset_connector_cache(); });
}

nb::object Bridge::flush_journal() {
  if (journal_ == nullptr) return nb::none();
  {
    const nb::gil_scoped_release released;
    journal_->flush();
  }
  const std::optional<JournalEnd> end = journal_->end();
  const nb::object why = end ? nb::cast(std::string(journal_end_name(*end))) : nb::none();
  return nb::make_tuple(journal_->path(), journal_->num_bytes(), why);
}

nb::object Bridge::flush_trace() {
  if (trace_ == nullptr) return nb::none();
  {
    const nb::gil_scoped_release released;
    trace_->flush();
  }
  return nb::make_tuple(trace_->num_written(), trace_->num_dropped());
}

std::vector<Draft> Bridge::drafts_of(nb::handle names, nb::handle drafts, std::vector<std::vector<TokenId>>& kept) const {
  std::vector<Draft> out;
  kept.reserve(static_cast<std::size_t>(nb::len(names)));
  for (std::size_t i = 0; i < static_cast<std::size_t>(nb::len(names)); ++i) {
    const RequestRecord* record = lookup(nb::object(names[i]));
    if (record != nullptr && !record->finished) {
      kept.push_back(tokens_in(nb::object(drafts[i])));
      out.push_back({record->id, kept.back()});
    }
  }
  return out;
}

void Bridge::set_drafts(nb::handle names, nb::handle drafts) {
  std::vector<std::vector<TokenId>> kept;
  const std::vector<Draft> given = drafts_of(names, drafts, kept);
  guarded([&] { core_->set_drafts(given); });
  for (const Draft& draft : given) refresh_if_held(*find(draft.id));
}

nb::dict Bridge::set_drafts_in_plan(nb::handle names, nb::handle drafts) {
  if (outstanding_.empty()) raise_state("update_draft_token_ids_in_output(): no step is outstanding; call schedule() first");
  std::vector<std::vector<TokenId>> kept;
  const std::vector<Draft> given = drafts_of(names, drafts, kept);
  guarded([&] { core_->set_drafts_in_plan(given); });
  nb::dict out;
  for (const ScheduledRequest& scheduled : outstanding_.back().plan->scheduled) {
    for (const Draft& draft : given)
      if (draft.id == scheduled.id && !scheduled.drafts.empty()) out[find(scheduled.id)->name] = fast::list(scheduled.drafts);
  }
  return out;
}

}  // namespace quire::python
