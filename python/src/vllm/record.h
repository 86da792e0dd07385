#pragma once
// The bridge's record of a vLLM request: the Python object, its interned name, and the values that were last written to the object.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/request.h"

namespace quire::python {

namespace nb = nanobind;

// The values last written to the Python request.
struct MirroredFields {
  RequestStatus status = RequestStatus::waiting;
  std::int64_t num_computed_tokens = 0;
  std::int64_t num_output_placeholders = 0;
  std::int64_t num_cached_tokens = -1;
  std::int64_t num_external_computed_tokens = 0;
  std::int64_t num_preemptions = 0;
  bool is_prefill_chunk = false;
  bool discard_latest_async_tokens = false;
  std::int64_t num_in_flight = 0, num_stale = 0;
  bool drops_stale = false;
  bool has_drafts = false;
  std::int64_t num_nans = 0;
};

struct RequestRecord {
  RequestId id{};
  nb::object name;                                     // str
  nb::object request;                                  // vllm.v1.request.Request; null when vLLM would have removed it
  nb::object all_tokens, output_tokens, block_hashes;  // the lists in `request`
  nb::object trace_headers;
  nb::object kv_transfer_params;            // the connector's parameters of an ended request, until an output contains them
  nb::object stop_reason;                   // kept across the inputs of a session, as in vLLM
  nb::object new_blocks;                    // new block ids in the plan that is being converted
  std::vector<TokenId> unmirrored_outputs;  // outputs that were not written to the Python request yet
  std::uint64_t num_mirrored_tokens = 0;    // number of tokens that were written to the Python request
  std::uint64_t num_tokens = 0;             // number of prompt tokens and reported outputs

  MirroredFields mirrored;
  std::uint32_t client_index = 0;
  std::uint32_t num_prompt_tokens = 0;
  std::int64_t num_prefill_tokens = 0;   // tokens of the first prompt; -1 after an output has contained its PrefillStats
  std::int64_t num_computed_tokens = 0;  // counted from plans and results; equals vLLM's value when the request ends
  std::int64_t num_nans = 0;
  bool needs_logprobs = false;
  bool pooling = false;
  bool structured = false;
  bool session = false;
  bool has_next_input = false;  // the next input of the session was already applied to the Python request

  bool finished = false;
  bool is_listed_in_plan = false;  // a plan has listed the request as finished
  bool reported = false;           // a finished set has listed the request
  bool retired = false;            // the core does not refer to the request any more
};

// Finds records by RequestId. The low bits of an id are an index, which is reused; the high bits are never reused.
class RecordTable {
 public:
  RequestRecord& make() {
    std::uint64_t index = records_.size();
    if (free_.empty()) {
      records_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    records_[index] = std::make_unique<RequestRecord>();
    records_[index]->id = RequestId{(++generation_ << kIndexBits) | index};
    return *records_[index];
  }

  // Returns the record, or null if it was removed.
  [[nodiscard]] RequestRecord* find(RequestId id) const {
    const std::uint64_t index = id.value & ((std::uint64_t{1} << kIndexBits) - 1);
    RequestRecord* record = index < records_.size() ? records_[index].get() : nullptr;
    return record != nullptr && record->id == id ? record : nullptr;
  }

  void drop(RequestId id) {
    const std::uint64_t index = id.value & ((std::uint64_t{1} << kIndexBits) - 1);
    records_[index].reset();
    free_.push_back(index);
  }

  template <class Visit>
  void for_each(Visit visit) {
    for (auto& record : records_)
      if (record) visit(*record);
  }

 private:
  static constexpr unsigned kIndexBits = 24;
  std::vector<std::unique_ptr<RequestRecord>> records_;
  std::vector<std::uint64_t> free_;
  std::uint64_t generation_ = 0;
};

}  // namespace quire::python
