#include "vllm/mirror.h"

#include <algorithm>
#include <utility>

#include "vllm/fast.h"

namespace quire::python {
namespace {

// Names in a RequestView are padded to this size.
constexpr std::size_t kStride = 32;

}  // namespace

Mirror::Mirror(nb::list statuses, std::uint32_t hash_bytes, const DecisionRules& rules)
    : statuses_(std::move(statuses)),
      hash_bytes_(hash_bytes),
      rules_(rules),
      status_(fast::interned("status")),
      num_computed_tokens_(fast::interned("num_computed_tokens")),
      num_output_placeholders_(fast::interned("num_output_placeholders")),
      num_cached_tokens_(fast::interned("num_cached_tokens")),
      num_external_computed_tokens_(fast::interned("num_external_computed_tokens")),
      num_preemptions_(fast::interned("num_preemptions")),
      is_prefill_chunk_(fast::interned("is_prefill_chunk")),
      discard_latest_async_tokens_(fast::interned("discard_latest_async_tokens")),
      spec_token_ids_(fast::interned("spec_token_ids")),
      prompt_token_ids_(fast::interned("prompt_token_ids")),
      num_prompt_tokens_(fast::interned("num_prompt_tokens")),
      stop_reason_(fast::interned("stop_reason")),
      num_nans_in_logits_(fast::interned("num_nans_in_logits")),
      num_in_flight_tokens_(fast::interned("num_in_flight_tokens")),
      num_stale_output_tokens_(fast::interned("num_stale_output_tokens")),
      drop_stale_output_(fast::interned("drop_stale_output")) {}

void Mirror::append_tokens(Record& record, std::span<const TokenId> outputs) {
  if (outputs.empty()) return;
  fast::extend(record.all_tokens, outputs);
  fast::extend(record.output_tokens, outputs);
  record.num_shown_tokens += outputs.size();
}

void Mirror::append_hashes(Record& record, const RequestView& view) {
  if (hash_bytes_ == 0) return;
  const auto known = static_cast<std::size_t>(PyList_GET_SIZE(record.block_hashes.ptr()));
  for (std::size_t i = known; (i + 1) * kStride <= view.block_hashes.size(); ++i) {
    const std::uint8_t* data = view.block_hashes.data() + i * kStride;
    fast::append(record.block_hashes, PyBytes_FromStringAndSize(reinterpret_cast<const char*>(data), hash_bytes_));
  }
}

void Mirror::set_status(Record& record, RequestStatus status) {
  if (record.shown.status != status) {
    record.shown.status = status;
    nb::setattr(record.request, status_, statuses_[static_cast<std::size_t>(status)]);
  }
}

void Mirror::set_number(Record& record, const nb::object& name, std::int64_t Shown::* field, std::int64_t value) {
  if (record.shown.*field != value) {
    record.shown.*field = value;
    nb::setattr(record.request, name, nb::int_(value));
  }
}

void Mirror::set_flag(Record& record, const nb::object& name, bool Shown::* field, bool value) {
  if (record.shown.*field != value) {
    record.shown.*field = value;
    nb::setattr(record.request, name, nb::bool_(value));
  }
}

void Mirror::show(Record& record, const RequestView& view) {
  append_tokens(record, view.tokens.subspan(std::min<std::size_t>(record.num_shown_tokens, view.tokens.size())));
  record.unseen.clear();
  append_hashes(record, view);
  set_status(record, view.status);
  set_number(record, num_computed_tokens_, &Shown::num_computed_tokens, view.num_computed_tokens);
  set_number(record, num_output_placeholders_, &Shown::num_output_placeholders, view.num_output_placeholders);
  if (rules_.stale_outputs) {
    set_number(record, num_in_flight_tokens_, &Shown::num_in_flight, view.num_tokens_in_flight);
    set_number(record, num_stale_output_tokens_, &Shown::num_stale, view.num_stale_tokens);
    set_flag(record, drop_stale_output_, &Shown::drops_stale, view.drops_stale);
  } else {
    set_number(record, num_cached_tokens_, &Shown::num_cached_tokens, view.num_cached_tokens);
    set_number(record, num_external_computed_tokens_, &Shown::num_external_computed_tokens, view.num_external_computed_tokens);
    set_flag(record, discard_latest_async_tokens_, &Shown::discard_latest_async_tokens, view.discard_latest_async_tokens);
  }
  set_number(record, num_preemptions_, &Shown::num_preemptions, view.num_preemptions);
  set_flag(record, is_prefill_chunk_, &Shown::is_prefill_chunk, view.is_prefill_chunk);
  if (!view.draft_tokens.empty() || record.shown.has_drafts) nb::setattr(record.request, spec_token_ids_, fast::list(view.draft_tokens));
  record.shown.has_drafts = !view.draft_tokens.empty();
  if (record.stop_reason.is_valid()) nb::setattr(record.request, stop_reason_, record.stop_reason);
  set_number(record, num_nans_in_logits_, &Shown::num_nans, record.num_nans);
}

void Mirror::show_session(Record& record, const RequestView& view) {
  const nb::object prompt = fast::list(view.tokens.first(view.num_prompt_tokens));
  const nb::object own_prompt = record.request.attr(prompt_token_ids_);
  fast::check(PyList_SetSlice(own_prompt.ptr(), 0, PyList_GET_SIZE(own_prompt.ptr()), prompt.ptr()));
  fast::check(PyList_SetSlice(record.all_tokens.ptr(), 0, PyList_GET_SIZE(record.all_tokens.ptr()), prompt.ptr()));
  fast::check(PyList_SetSlice(record.output_tokens.ptr(), 0, PyList_GET_SIZE(record.output_tokens.ptr()), nullptr));
  // What comes behind the cut has other names.
  if (rules_.sessions_cut) fast::check(PyList_SetSlice(record.block_hashes.ptr(), 0, PyList_GET_SIZE(record.block_hashes.ptr()), nullptr));
  nb::setattr(record.request, num_prompt_tokens_, nb::int_(view.num_prompt_tokens));
  record.num_shown_tokens = record.num_tokens = view.num_prompt_tokens;
  show(record, view);
  record.num_tokens = view.tokens.size();
}

void Mirror::show_finished(Record& record, RequestStatus status) {
  append_tokens(record, record.unseen);
  record.unseen.clear();
  set_status(record, status);
  set_number(record, num_computed_tokens_, &Shown::num_computed_tokens, record.num_computed_tokens);
  if (record.stop_reason.is_valid()) nb::setattr(record.request, stop_reason_, record.stop_reason);
}

}  // namespace quire::python
