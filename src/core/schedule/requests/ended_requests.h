#pragma once
// Requests that have ended: which holders keep their blocks, and which requests exist only because an outstanding plan refers to them.
//
//   finished, known -> finished, unknown  free_blocks: immediately, or when the last holder releases the blocks
//   unknown -> destroyed                  destroy_unreferenced: when no outstanding plan refers to the request
#include <span>
#include <vector>

#include "core/schedule/requests/holds.h"
#include "core/schedule/requests/jobs.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/request_table.h"
#include "core/schedule/requests/step_fences.h"

namespace quire {

class EndedRequests {
 public:
  EndedRequests(StepFences& fences, RequestTable& table, Jobs& jobs) : fences_(fences), table_(table), jobs_(jobs) {}

  // Adds a holder of the blocks of a request that has ended and is known. A second call with the same holder has no effect.
  void keep(Request& request, Holder holder) { ledger_.take(request, holder); }
  // Removes a holder. Frees the blocks if it was the last holder.
  void release(Request& request, Holder holder);
  // Frees blocks that have no holder. The request is unknown from then on: only outstanding plans may refer to it.
  void free_blocks(Request& request);
  // Destroys unknown requests to which no outstanding plan refers. Called at the end of apply() and finish().
  void destroy_unreferenced();
  // Destroys the request, which must be unknown. No plan may refer to it.
  void destroy(Request& request);

  [[nodiscard]] const HoldLedger& ledger() const { return ledger_; }
  [[nodiscard]] std::size_t num_gone() const { return gone_.size(); }
  // Returns whether requests were destroyed, or can be destroyed, since the last report.
  [[nodiscard]] bool has_news() const { return !retiring_.empty() || !gone_.empty(); }
  // Replaces the content of `retired` by the ids of the requests that were destroyed since the last call.
  void take_retired(std::vector<RequestId>& retired);
  [[nodiscard]] std::span<Request* const> gone() const { return gone_; }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [fences, table, jobs, ledger, gone, retiring] = self;
    form(ledger, gone, retiring);
  }

 private:
  StepFences& fences_;
  RequestTable& table_;
  Jobs& jobs_;
  HoldLedger ledger_;
  std::vector<Request*> gone_;       // unknown requests; destroyed when no outstanding plan refers to them
  std::vector<RequestId> retiring_;  // destroyed requests that are not reported yet
};

}  // namespace quire
