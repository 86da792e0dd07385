#pragma once
// Requests that have ended: the holders that keep their blocks, and the requests that only an outstanding plan still names.
//
//   finished, known -> finished, unknown  free_blocks: immediately, or when the last holder releases the blocks
//   unknown -> destroyed                  destroy_unreferenced: when no outstanding plan names the request
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

  // Keeps the blocks of a request that has ended and is known. A second call for the same holder has no effect.
  void keep(Request& request, Holder holder) { ledger_.take(request, holder); }
  // Releases a hold. Frees the blocks if it was the last one.
  void release(Request& request, Holder holder);
  // Frees blocks that have no holder. From then on the request is unknown: only outstanding plans may still name it.
  void free_blocks(Request& request);
  // Destroys unknown requests that no outstanding plan names. Called at the end of apply() and finish().
  void destroy_unreferenced();
  // Requires that the request is unknown and that no plan names it.
  void destroy(Request& request);

  [[nodiscard]] const HoldLedger& ledger() const { return ledger_; }
  [[nodiscard]] std::size_t num_gone() const { return gone_.size(); }
  // Returns whether there are ids to report as retired.
  [[nodiscard]] bool has_news() const { return !retiring_.empty() || !gone_.empty(); }
  // Replaces the content of `retired` by the requests destroyed since the last call.
  void take_retired(std::vector<RequestId>& retired);
  [[nodiscard]] std::span<Request* const> gone() const { return gone_; }

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). The binding must name every member to compile.
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
  std::vector<Request*> gone_;       // unknown requests; destroyed once no outstanding plan names them
  std::vector<RequestId> retiring_;  // destroyed requests that are not reported yet
};

}  // namespace quire
