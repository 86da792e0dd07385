#include "runtime/transport/transfer_runner.h"

#include <algorithm>
#include <mutex>

#include "base/check.h"

namespace quire {

// Known to the transport before anybody wants to be notified.
// Shared with the transport, whose threads may call it while the runner ends: the runner takes the function away under the lock first.
struct TransferRunner::Notice {
  std::mutex mutex;
  std::function<void()> notify;
  void operator()() {
    const std::lock_guard lock(mutex);
    if (notify) notify();
  }
};

TransferRunner::TransferRunner(std::shared_ptr<Transport> transport, const KvPages& pages)
    : transport_(std::move(transport)), notice_(std::make_shared<Notice>()) {
  if (transport_ != nullptr) transport_->attach(pages, [notice = notice_] { (*notice)(); });
}

TransferRunner::~TransferRunner() {
  notify_with({});
  if (transport_ != nullptr) transport_->detach();
}

void TransferRunner::notify_with(std::function<void()> notify) {
  const std::lock_guard lock(notice_->mutex);
  notice_->notify = std::move(notify);
}

void TransferRunner::begin(const Transfer& transfer) {
  QUIRE_CHECK(transport_ != nullptr, "a plan with transfers for a worker without a transport");
  open_.push_back({transfer.id, transfer.direction});
  transport_->start(transfer);
}

void TransferRunner::store(const StepPlan& plan) {
  for (const Transfer& transfer : plan.transfers)
    if (transfer.direction == TransferDirection::store) begin(transfer);
  // Behind the stores that begin here, since one of them may be what a fence names.
  for (const TransferId fence : plan.fences) transport_->wait(fence);
}

void TransferRunner::load(const StepPlan& plan) {
  by_layer_.clear();
  for (const Transfer& transfer : plan.transfers)
    if (transfer.direction == TransferDirection::load) begin(transfer);
  for (const Transfer& transfer : plan.transfers) {
    if (transfer.need == TransferNeed::step) transport_->wait(transfer.id);
    if (transfer.need == TransferNeed::layer_by_layer) by_layer_.push_back(transfer.id);
  }
}

void TransferRunner::before_attention(std::uint32_t layer) {
  for (const TransferId id : by_layer_) transport_->wait_for_layer(id, layer);
}

void TransferRunner::after_kv_write(std::uint32_t layer) {
  if (transport_ != nullptr) transport_->layer_written(layer);
}

// Copies the bad blocks: the transport's views are over with its next poll(), and the core reads the result after that.
void TransferRunner::collect(CollectedTransfers& into) {
  into.completions.clear();
  into.bad_blocks.clear();
  over_.clear();
  if (transport_ != nullptr) transport_->poll(over_);
  into.bad_blocks.reserve(over_.size());
  for (const TransferCompletion& completion : over_) {
    const auto found = std::ranges::find(open_, completion.transfer, &Open::id);
    // Counted and passed over: a transport that tells of an end twice must not end somebody else's transfer.
    if (found == open_.end()) {
      ++totals_.num_stray;
      continue;
    }
    const bool is_load = found->direction == TransferDirection::load;
    ++(is_load ? totals_.num_loads : totals_.num_stores);
    (is_load ? totals_.bytes_loaded : totals_.bytes_stored) += completion.bytes;
    totals_.num_failed += completion.outcome == TransferOutcome::failed ? 1 : 0;
    open_.erase(found);
    TransferCompletion& kept = into.completions.emplace_back(completion);
    kept.bad_blocks = into.bad_blocks.emplace_back(completion.bad_blocks.begin(), completion.bad_blocks.end());
  }
  into.totals = totals_;
}

}  // namespace quire
