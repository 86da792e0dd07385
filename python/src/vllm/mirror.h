#pragma once
// Keeps vLLM's Python requests true. They are refreshed when somebody is about to look, not in every step.
#include <nanobind/nanobind.h>

#include <cstdint>

#include "quire/base/decision_profile.h"
#include "quire/base/request.h"
#include "vllm/record.h"

namespace quire::python {

class Mirror {
 public:
  // `statuses`: vLLM's RequestStatus members in the order of quire's. hash_bytes: size of one block name; 0 where the core names no blocks.
  // What a Request has to show depends on `rules`.
  Mirror(nb::list statuses, std::uint32_t hash_bytes, const DecisionRules& rules);

  // Writes what the core says about the request into the Python object.
  void show(Record& record, const RequestView& view);
  // The same for a session that has taken its next input: its prompt is another one, and it has no outputs.
  void show_session(Record& record, const RequestView& view);
  // The last words about a request that the core may have forgotten: `unseen` outputs, status, counters.
  void show_finished(Record& record, RequestStatus status);

 private:
  void append_tokens(Record& record, std::span<const TokenId> outputs);
  void append_hashes(Record& record, const RequestView& view);
  void set_status(Record& record, RequestStatus status);
  void set_number(Record& record, const nb::object& name, std::int64_t Shown::* field, std::int64_t value);
  void set_flag(Record& record, const nb::object& name, bool Shown::* field, bool value);

  nb::list statuses_;
  std::uint32_t hash_bytes_;
  DecisionRules rules_;
  nb::object status_, num_computed_tokens_, num_output_placeholders_, num_cached_tokens_, num_external_computed_tokens_, num_preemptions_,
      is_prefill_chunk_, discard_latest_async_tokens_, spec_token_ids_, prompt_token_ids_, num_prompt_tokens_, stop_reason_,
      num_nans_in_logits_, num_in_flight_tokens_, num_stale_output_tokens_, drop_stale_output_;
};

}  // namespace quire::python
