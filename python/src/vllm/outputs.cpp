#include "vllm/outputs.h"

#include <utility>

#include "vllm/fast.h"

namespace quire::python {

OutputBuilder::OutputBuilder(OutputTypes types) : types_(std::move(types)), name_tuples_(std::size_t{1} << OutputFields::count) {
  constexpr std::array<const char*, OutputFields::count> kNames = {
      "new_logprobs",   "new_prompt_logprobs_tensors", "pooling_output", "finish_reason",     "stop_reason",
      "events",         "kv_transfer_params",          "trace_headers",  "num_cached_tokens", "num_external_computed_tokens",
      "routed_experts", "num_nans_in_logits",          "prefill_stats"};
  for (std::size_t i = 0; i < kNames.size(); ++i) names_[i] = fast::interned(kNames[i]);
}

nb::handle OutputBuilder::names_of(std::uint32_t mask) {
  nb::object& names = name_tuples_[mask];
  if (!names.is_valid()) {
    nb::list list;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if ((mask >> i & 1U) != 0) list.append(names_[i]);
    names = nb::tuple(list);
  }
  return names;
}

nb::object OutputBuilder::make(nb::handle request_id, nb::handle tokens, const OutputFields& fields) {
  std::array<PyObject*, OutputFields::count + 3> arguments;
  arguments[1] = request_id.ptr();
  arguments[2] = tokens.ptr();
  std::size_t used = 3;
  std::uint32_t mask = 0;
  for (std::size_t i = 0; i < fields.values.size(); ++i) {
    if (fields.values[i].is_valid()) {
      mask |= 1U << i;
      arguments[used++] = fields.values[i].ptr();
    }
  }
  return fast::steal(PyObject_Vectorcall(types_.output.ptr(), arguments.data() + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                         mask != 0 ? names_of(mask).ptr() : nullptr));
}

nb::object OutputBuilder::events(std::span<const RequestEvent> events) const {
  nb::list out;
  for (const RequestEvent& event : events)
    out.append(types_.event(types_.event_types[static_cast<std::size_t>(event.kind) - 1], event.timestamp));
  return out;
}

}  // namespace quire::python
