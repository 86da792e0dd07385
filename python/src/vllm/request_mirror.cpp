#include "vllm/request_mirror.h"

#include <algorithm>
#include <utility>

#include "vllm/fast.h"

namespace quire::python {
namespace {

// Size to which block hashes in a RequestView are padded.
constexpr std::size_t kHashStride = 32;

}  // namespace

RequestMirror::RequestMirror(nb::list statuses, std::uint32_t hash_bytes, const DecisionRules& rules)
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

void RequestMirror::append_tokens(RequestRecord& record, std::span<const TokenId> outputs) {
  if (outputs.empty()) return;
  fast::extend(record.all_tokens, outputs);
  fast::extend(record.output_tokens, outputs);
  record.num_mirrored_tokens += outputs.size();
}

void RequestMirror::append_hashes(RequestRecord& record, const RequestView& view) {
  if (hash_bytes_ == 0) return;
  const auto known = static_cast<std::size_t>(PyList_GET_SIZE(record.block_hashes.ptr()));
  for (std::size_t i = known; (i + 1) * kHashStride <= view.block_hashes.size(); ++i) {
    const std::uint8_t* data = view.block_hashes.data() + i * kHashStride;
    fast::append(record.block_hashes, PyBytes_FromStringAndSize(reinterpret_cast<const char*>(data), hash_bytes_));
  }
}

void RequestMirror::set_status(RequestRecord& record, RequestStatus status) {
  if (record.mirrored.status != status) {
    record.mirrored.status = status;
    nb::setattr(record.request, status_, statuses_[static_cast<std::size_t>(status)]);
  }
}

void RequestMirror::set_number(RequestRecord& record, const nb::object& name, std::int64_t MirroredFields::* field, std::int64_t value) {
  if (record.mirrored.*field != value) {
    record.mirrored.*field = value;
    nb::setattr(record.request, name, nb::int_(value));
  }
}

void RequestMirror::set_flag(RequestRecord& record, const nb::object& name, bool MirroredFields::* field, bool value) {
  if (record.mirrored.*field != value) {
    record.mirrored.*field = value;
    nb::setattr(record.request, name, nb::bool_(value));
  }
}

void RequestMirror::update(RequestRecord& record, const RequestView& view) {
  append_tokens(record, view.tokens.subspan(std::min<std::size_t>(record.num_mirrored_tokens, view.tokens.size())));
  record.unmirrored_outputs.clear();
  append_hashes(record, view);
  set_status(record, view.status);
  set_number(record, num_computed_tokens_, &MirroredFields::num_computed_tokens, view.num_computed_tokens);
  set_number(record, num_output_placeholders_, &MirroredFields::num_output_placeholders, view.num_output_placeholders);
  if (rules_.stale_outputs) {
    set_number(record, num_in_flight_tokens_, &MirroredFields::num_in_flight, view.num_tokens_in_flight);
    set_number(record, num_stale_output_tokens_, &MirroredFields::num_stale, view.num_stale_tokens);
    set_flag(record, drop_stale_output_, &MirroredFields::drops_stale, view.drops_stale);
  } else {
    set_number(record, num_cached_tokens_, &MirroredFields::num_cached_tokens, view.num_cached_tokens);
    set_number(record, num_external_computed_tokens_, &MirroredFields::num_external_computed_tokens, view.num_external_computed_tokens);
    set_flag(record, discard_latest_async_tokens_, &MirroredFields::discard_latest_async_tokens, view.discard_latest_async_tokens);
  }
  set_number(record, num_preemptions_, &MirroredFields::num_preemptions, view.num_preemptions);
  set_flag(record, is_prefill_chunk_, &MirroredFields::is_prefill_chunk, view.is_prefill_chunk);
  if (!view.draft_tokens.empty() || record.mirrored.has_drafts) nb::setattr(record.request, spec_token_ids_, fast::list(view.draft_tokens));
  record.mirrored.has_drafts = !view.draft_tokens.empty();
  if (record.stop_reason.is_valid()) nb::setattr(record.request, stop_reason_, record.stop_reason);
  set_number(record, num_nans_in_logits_, &MirroredFields::num_nans, record.num_nans);
}

void RequestMirror::update_session(RequestRecord& record, const RequestView& view) {
  const nb::object prompt = fast::list(view.tokens.first(view.num_prompt_tokens));
  const nb::object own_prompt = record.request.attr(prompt_token_ids_);
  fast::check(PyList_SetSlice(own_prompt.ptr(), 0, PyList_GET_SIZE(own_prompt.ptr()), prompt.ptr()));
  fast::check(PyList_SetSlice(record.all_tokens.ptr(), 0, PyList_GET_SIZE(record.all_tokens.ptr()), prompt.ptr()));
  fast::check(PyList_SetSlice(record.output_tokens.ptr(), 0, PyList_GET_SIZE(record.output_tokens.ptr()), nullptr));
  // The blocks after the cut get other hashes.
  if (rules_.truncates_session_answers)
    fast::check(PyList_SetSlice(record.block_hashes.ptr(), 0, PyList_GET_SIZE(record.block_hashes.ptr()), nullptr));
  nb::setattr(record.request, num_prompt_tokens_, nb::int_(view.num_prompt_tokens));
  record.num_mirrored_tokens = record.num_tokens = view.num_prompt_tokens;
  update(record, view);
  record.num_tokens = view.tokens.size();
}

void RequestMirror::update_finished(RequestRecord& record, RequestStatus status) {
  append_tokens(record, record.unmirrored_outputs);
  record.unmirrored_outputs.clear();
  set_status(record, status);
  set_number(record, num_computed_tokens_, &MirroredFields::num_computed_tokens, record.num_computed_tokens);
  if (record.stop_reason.is_valid()) nb::setattr(record.request, stop_reason_, record.stop_reason);
}

}  // namespace quire::python
