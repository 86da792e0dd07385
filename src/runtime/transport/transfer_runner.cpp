#include "runtime/transport/transfer_runner.h"

#include <algorithm>
#include <mutex>

#include "base/check.h"

namespace quire {

// Callback shared with the transport. The transport's threads may call it while the runner is destroyed, so the destructor first clears
// `notify` under the lock.
struct TransferRunner::NotifyState {
  std::mutex mutex;
  std::function<void()> notify;
  void operator()() {
    const std::lock_guard lock(mutex);
    if (notify) notify();
  }
};

TransferRunner::TransferRunner(std::shared_ptr<Transport> transport, const KvPages& pages)
    : transport_(std::move(transport)), notify_state_(std::make_shared<NotifyState>()) {
  if (transport_ != nullptr) transport_->attach(pages, [notice = notify_state_] { (*notice)(); });
}

TransferRunner::~TransferRunner() {
  set_notify({});
  if (transport_ != nullptr) transport_->detach();
}

void TransferRunner::set_notify(std::function<void()> notify) {
  const std::lock_guard lock(notify_state_->mutex);
  notify_state_->notify = std::move(notify);
}

void TransferRunner::begin(const Transfer& transfer) {
  QUIRE_CHECK(transport_ != nullptr, "a worker that receives transfers has a transport");
  open_.push_back({transfer.id, transfer.direction});
  transport_->start(transfer);
}

void TransferRunner::store(const StepPlan& plan) {
  for (const Transfer& transfer : plan.transfers)
    if (transfer.direction == TransferDirection::store) begin(transfer);
  // Waits after the stores have begun, because a fence may name one of them.
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

// Copies the bad blocks, because the transport's views end with its next poll() and the core reads the result later.
void TransferRunner::collect(CollectedTransfers& into) {
  into.completions.clear();
  into.bad_blocks.clear();
  over_.clear();
  if (transport_ != nullptr) transport_->poll(over_);
  into.bad_blocks.reserve(over_.size());
  for (const TransferCompletion& completion : over_) {
    const auto found = std::ranges::find(open_, completion.transfer, &Open::id);
    // Ignored, because a transport that reports an end twice must not end another transfer.
    if (found == open_.end()) {
      ++totals_.num_unexpected;
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
