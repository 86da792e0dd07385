#pragma once
// Keeps vLLM's Python requests up to date. A request is refreshed only before other code reads it, not in every step.
#include <nanobind/nanobind.h>

#include <cstdint>

#include "quire/base/decision_profile.h"
#include "quire/base/request.h"
#include "vllm/record.h"

namespace quire::python {

class RequestMirror {
 public:
  // `statuses`: vLLM's RequestStatus members in the order of quire::RequestStatus. `hash_bytes`: size of one block hash; 0 if the core
  // computes none. `rules` decide which fields of a Request are written.
  RequestMirror(nb::list statuses, std::uint32_t hash_bytes, const DecisionRules& rules);

  // Writes the core's view of the request into the Python object.
  void update(RequestRecord& record, const RequestView& view);
  // Updates the Python object of a session that has taken its next input: its prompt has changed, and it has no outputs.
  void update_session(RequestRecord& record, const RequestView& view);
  // Updates a request for the last time, when the core may have removed it: writes `unmirrored_outputs`, the status and the counters.
  void update_finished(RequestRecord& record, RequestStatus status);

 private:
  void append_tokens(RequestRecord& record, std::span<const TokenId> outputs);
  void append_hashes(RequestRecord& record, const RequestView& view);
  void set_status(RequestRecord& record, RequestStatus status);
  void set_number(RequestRecord& record, const nb::object& name, std::int64_t MirroredFields::* field, std::int64_t value);
  void set_flag(RequestRecord& record, const nb::object& name, bool MirroredFields::* field, bool value);

  nb::list statuses_;
  std::uint32_t hash_bytes_;
  DecisionRules rules_;
  nb::object status_, num_computed_tokens_, num_output_placeholders_, num_cached_tokens_, num_external_computed_tokens_, num_preemptions_,
      is_prefill_chunk_, discard_latest_async_tokens_, spec_token_ids_, prompt_token_ids_, num_prompt_tokens_, stop_reason_,
      num_nans_in_logits_, num_in_flight_tokens_, num_stale_output_tokens_, drop_stale_output_;
};

}  // namespace quire::python
