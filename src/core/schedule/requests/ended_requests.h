#pragma once
// Requests that have ended: whose blocks are kept, and by whom; and who is gone but for an outstanding plan that names it.
//
//   finished, known -> finished, unknown  free_blocks: at once, or when the last holder lets go
//   unknown -> destroyed                  destroy_gone: when no outstanding plan names it
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

  // The request has ended and is known. Keeping twice by one holder is keeping once.
  void keep(Request& request, Holder holder) { ledger_.take(request, holder); }
  // Frees the blocks if it was the last one.
  void let_go(Request& request, Holder holder);
  // Nobody holds them. From then on the request is not known: only outstanding plans may still name it.
  void free_blocks(Request& request);
  // At the end of apply() and of finish(): that is when a plan that named a request is over.
  void destroy_gone();
  // It is known no more, and no plan names it.
  void destroy(Request& request);

  [[nodiscard]] const HoldLedger& ledger() const { return ledger_; }
  [[nodiscard]] std::size_t num_gone() const { return gone_.size(); }
  // Ids that are to be told of as retired.
  [[nodiscard]] bool has_news() const { return !retiring_.empty() || !gone_.empty(); }
  // Those destroyed since the last call replace the content of `retired`.
  void take_retired(std::vector<RequestId>& retired);
  [[nodiscard]] std::span<Request* const> gone() const { return gone_; }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [fences, table, jobs, ledger, gone, retiring] = self;
    form(ledger, gone, retiring);
  }

 private:
  StepFences& fences_;
  RequestTable& table_;
  Jobs& jobs_;
  HoldLedger ledger_;
  std::vector<Request*> gone_;       // not known any more; destroyed once no outstanding plan names them
  std::vector<RequestId> retiring_;  // destroyed, and not reported yet
};

}  // namespace quire
