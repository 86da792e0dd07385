#pragma once
// The connector of a tier in a store that other servers also use (remote_tier.h). The connector queries the store before it reports what a
// request can load.
//
// States of a query, and what moves it to the next state:
//   (none)   -> asked      match(), for a request that needs more blocks than the cache has; it returns "not known yet"
//   asked    -> answered   the store's thread
//   asked    -> over       match(), after the time limit; the ledger is not changed
//   answered -> over       match(), which updates the ledger first
// All other calls go to the offloading connector.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/connect/offload_connector.h"
#include "runtime/remote/shared_store.h"

namespace quire {

class RemoteConnector final : public Connector {
 public:
  // Creates a connector. `store` must outlive the connector. `patience`: how long a request waits for the answer to a query.
  RemoteConnector(std::unique_ptr<OffloadConnector> offload, SharedStore& store, std::chrono::steady_clock::duration patience);

  // Sets whether the tier loads, stores and queries from now on. Called on the engine thread, between two calls of the core.
  void serve(const TierService& service);
  [[nodiscard]] OffloadConnector& offload() { return *offload_; }
  [[nodiscard]] const OffloadConnector& offload() const { return *offload_; }
  // Returns whether the ledger is being updated with blocks that other servers have stored.
  [[nodiscard]] bool is_learning() const { return is_learning_; }
  // Returns the number of queries that were answered too late or incompletely. May be called on any thread.
  [[nodiscard]] std::uint64_t num_timed_out() const { return num_timed_out_; }
  // Returns the number of requests with a query.
  [[nodiscard]] std::size_t num_tracked() const { return questions_.size(); }

  void bind(const Core& core) override { offload_->bind(core); }
  [[nodiscard]] bool supports_groups() const override { return offload_->supports_groups(); }
  [[nodiscard]] bool supports_states() const override { return offload_->supports_states(); }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override;
  // Reports what the ledger contains, without querying the store.
  bool peek(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) override {
    return offload_->peek(request, num_local_tokens, matches);
  }
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    offload_->allocated(request, blocks, num_external_tokens);
  }
  bool finished(const RequestView& request, GroupBlocks blocks) override;
  void planned(const StepPlan& plan) override { offload_->planned(plan); }
  void plan_transfers(const StepPlan& plan, TransferList& transfers) override { offload_->plan_transfers(plan, transfers); }
  void completed(const TransferCompletion& completion) override { offload_->completed(completion); }
  void order_failed(std::size_t num_async, std::span<RequestId> finishing, std::span<RequestId> reported) override {
    offload_->order_failed(num_async, finishing, reported);
  }
  void forget_blocks(const RequestView& request) override;
  void invalidated(const RequestView& request, std::uint32_t num_valid_tokens) override {
    offload_->invalidated(request, num_valid_tokens);
  }
  void sent(RequestId request) override { offload_->sent(request); }
  void step_output() override { offload_->step_output(); }
  // Resets the ledger. Blocks of other servers stay in the store. After a reset the store is not queried any more, so that only blocks
  // stored after the reset are found.
  bool reset() override;

 private:
  // A query, shared with the store's thread.
  struct Question {
    std::vector<OffloadKey> names;
    std::vector<bool> has;  // written before is_answered
    bool is_whole = false;  // written before is_answered
    std::atomic<bool> is_answered = false, is_dropped = false;
    std::chrono::steady_clock::time_point until;
  };

  bool begin(const RequestView& request, std::uint32_t num_local_tokens);
  void learn(const Question& question);

  const std::unique_ptr<OffloadConnector> offload_;
  SharedStore& store_;
  const std::chrono::steady_clock::duration patience_;
  bool asks_ = true, was_reset_ = false, is_learning_ = false;
  std::unordered_map<std::uint64_t, std::shared_ptr<Question>> questions_;  // queries by request; null: the query is over
  std::atomic<std::uint64_t> num_timed_out_ = 0;
};

}  // namespace quire
