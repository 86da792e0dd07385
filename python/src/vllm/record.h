#pragma once
// What the adapter keeps of a vLLM request: the Python object, its interned name, and what of the core's state that object shows already.
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
struct Shown {
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

struct Record {
  RequestId id{};
  nb::object name;                                     // str
  nb::object request;                                  // vllm.v1.request.Request; null once vLLM would have dropped it
  nb::object all_tokens, output_tokens, block_hashes;  // the lists inside `request`
  nb::object trace_headers;
  nb::object kv_transfer_params;       // what the connector said at the end, until the output carries it
  nb::object stop_reason;              // stays, as in vLLM, over the inputs of a session
  nb::object new_blocks;               // of the plan that is being told
  std::vector<TokenId> unseen;         // outputs that the Python request lacks
  std::uint64_t num_shown_tokens = 0;  // tokens it has
  std::uint64_t num_tokens = 0;        // prompt and all outputs told

  Shown shown;
  std::uint32_t client_index = 0;
  std::uint32_t num_prompt_tokens = 0;
  std::int64_t num_prefill_tokens = 0;   // of the first prompt; -1: an output has carried its PrefillStats
  std::int64_t num_computed_tokens = 0;  // as the plans and results said; vLLM's value when the request ends
  std::int64_t num_nans = 0;
  bool wants_logprobs = false;
  bool pooling = false;
  bool structured = false;
  bool session = false;
  bool input_taken = false;  // the Python request has the session's next input already

  bool finished = false;
  bool announced = false;  // a plan has named it among the finished
  bool reported = false;   // a finished set has named it
  bool retired = false;    // the core refers to it no more
};

// Records by RequestId, whose low bits are an index that is reused and whose high bits are not.
class RecordTable {
 public:
  Record& make() {
    std::uint64_t index = records_.size();
    if (free_.empty()) {
      records_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    records_[index] = std::make_unique<Record>();
    records_[index]->id = RequestId{(++generation_ << kIndexBits) | index};
    return *records_[index];
  }

  // Null for an id that was dropped.
  [[nodiscard]] Record* find(RequestId id) const {
    const std::uint64_t index = id.value & ((std::uint64_t{1} << kIndexBits) - 1);
    Record* record = index < records_.size() ? records_[index].get() : nullptr;
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
  std::vector<std::unique_ptr<Record>> records_;
  std::vector<std::uint64_t> free_;
  std::uint64_t generation_ = 0;
};

}  // namespace quire::python
