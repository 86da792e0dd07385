#pragma once
// Creates vLLM's EngineCoreOutput objects, one per request with something to report in a step.
#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <vector>

#include "quire/core.h"

namespace quire::python {

namespace nb = nanobind;

// The classes for outputs in the adapter's vLLM version.
struct OutputTypes {
  nb::object output;        // EngineCoreOutput(request_id, new_token_ids, *, ...)
  nb::list finish_reasons;  // FinishReason members in the order of quire::FinishReason
  nb::object event;         // EngineCoreEvent(type, timestamp)
  nb::list event_types;     // EngineCoreEventType members in the order of their values, which begin at 1
};

// The optional fields of an EngineCoreOutput; null means the default.
struct OutputFields {
  enum Name : std::uint8_t {
    new_logprobs,
    new_prompt_logprobs_tensors,
    pooling_output,
    finish_reason,
    stop_reason,
    events,
    kv_transfer_params,
    trace_headers,
    num_cached_tokens,
    num_external_computed_tokens,
    routed_experts,
    num_nans_in_logits,
    prefill_stats,
    count
  };
  std::array<nb::object, count> values;

  nb::object& operator[](Name name) { return values[name]; }
};

class OutputBuilder {
 public:
  explicit OutputBuilder(OutputTypes types);

  nb::object make(nb::handle request_id, nb::handle tokens, const OutputFields& fields);
  nb::object events(std::span<const RequestEvent> events) const;
  nb::object finish_reason(FinishReason reason) const { return types_.finish_reasons[static_cast<std::size_t>(reason)]; }

 private:
  nb::handle names_of(std::uint32_t mask);

  OutputTypes types_;
  std::array<nb::object, OutputFields::count> names_;
  std::vector<nb::object> name_tuples_;  // by bit mask of the fields that are set
};

}  // namespace quire::python
