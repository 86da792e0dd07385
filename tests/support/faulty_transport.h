#pragma once
// A transport that moves the bytes and reports some ends late, as failures, or not at all.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "quire/transport.h"

namespace quire::test {

// Probabilities that an end is reported late, as a failure, or never.
struct EndFaults {
  double late = 0.0, failed = 0.0, lost_stores = 0.0;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::shared_ptr<Transport> inner, const EndFaults& faults) : inner_(std::move(inner)), faults_(faults) {}

  void attach(const KvPages& pages, std::function<void()> notify) override {
    inner_->attach(pages, notify);
    reminder_ = std::thread([this, notify] {
      std::unique_lock lock(mutex_);
      while (!stops_) {
        changed_.wait_for(lock, std::chrono::microseconds(300));
        lock.unlock();
        notify();
        lock.lock();
      }
    });
  }
  void start(const Transfer& transfer) override {
    if (transfer.direction == TransferDirection::store) stores_.insert(transfer.id);
    inner_->start(transfer);
  }
  void poll(std::vector<TransferCompletion>& over) override {
    std::vector<TransferCompletion> fresh;
    inner_->poll(fresh);
    for (const TransferCompletion& one : fresh) {
      Held& held = held_.emplace_back(Held{one, {one.bad_blocks.begin(), one.bad_blocks.end()}});
      if (random_.chance(faults_.failed)) held.completion.outcome = TransferOutcome::failed;
    }
    reported_.clear();
    std::erase_if(held_, [&](Held& held) {
      if (random_.chance(faults_.late)) return false;
      if (!stores_.contains(held.completion.transfer) || !random_.chance(faults_.lost_stores)) reported_.push_back(std::move(held));
      return true;
    });
    for (Held& held : reported_) over.push_back(held.completion), over.back().bad_blocks = held.bad;
  }
  void wait(TransferId transfer) override { inner_->wait(transfer); }
  void wait_for_layer(TransferId transfer, std::uint32_t layer) override { inner_->wait_for_layer(transfer, layer); }
  void layer_written(std::uint32_t layer) override { inner_->layer_written(layer); }
  void detach() override {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    reminder_.join();
    inner_->detach();
  }

 private:
  struct Held {
    TransferCompletion completion;
    std::vector<BlockId> bad;
  };
  std::shared_ptr<Transport> inner_;
  EndFaults faults_;
  Random random_{99};
  std::set<TransferId> stores_;
  std::vector<Held> held_, reported_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  std::thread reminder_;
};

}  // namespace quire::test
