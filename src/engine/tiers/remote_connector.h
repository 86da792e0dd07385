#pragma once
// The connector of a tier whose store others use, too (remote_tier.h): before it says what a request could load, the store is asked.
//
// States of a question, and who moves it between them:
//   (none)  -> asked      match(), of a request that wants more than the cache has: "not known yet"
//   asked   -> answered   the store's thread
//   asked   -> over       match(), when it took too long: what was known before is what is there
//   answered -> over      match(): the ledger is told first
// Everything else is the offloading connector's.
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
  // `store` outlives it. `patience`: how long a request waits for an answer.
  RemoteConnector(std::unique_ptr<OffloadConnector> offload, SharedStore& store, std::chrono::steady_clock::duration patience);

  // The engine's thread, between two calls of the core.
  void serve(const TierService& service);
  [[nodiscard]] OffloadConnector& offload() { return *offload_; }
  [[nodiscard]] const OffloadConnector& offload() const { return *offload_; }
  // The ledger is being told of what others have stored.
  [[nodiscard]] bool is_learning() const { return is_learning_; }
  // Questions that took too long, or were not answered whole. Any thread.
  [[nodiscard]] std::uint64_t num_late() const { return num_late_; }
  // Requests of which it remembers a question.
  [[nodiscard]] std::size_t num_tracked() const { return questions_.size(); }

  void bind(const Core& core) override { offload_->bind(core); }
  [[nodiscard]] bool supports_groups() const override { return offload_->supports_groups(); }
  [[nodiscard]] bool supports_states() const override { return offload_->supports_states(); }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override;
  // Of what is known without asking.
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
  void spoiled(const RequestView& request, std::uint32_t num_good_tokens) override { offload_->spoiled(request, num_good_tokens); }
  void sent(RequestId request) override { offload_->sent(request); }
  void step_output() override { offload_->step_output(); }
  // Others' blocks stay in the store: from then on it is asked for nothing any more, and only what is stored from then on is found.
  bool reset() override;

 private:
  // Shared with the store's thread.
  struct Question {
    std::vector<OffloadKey> names;
    std::vector<bool> has;  // written before is_answered
    bool is_whole = false;  // the same
    std::atomic<bool> is_answered = false, is_dropped = false;
    std::chrono::steady_clock::time_point until;
  };

  bool begin(const RequestView& request, std::uint32_t num_local_tokens);
  void learn(const Question& question);

  const std::unique_ptr<OffloadConnector> offload_;
  SharedStore& store_;
  const std::chrono::steady_clock::duration patience_;
  bool asks_ = true, was_reset_ = false, is_learning_ = false;
  std::unordered_map<std::uint64_t, std::shared_ptr<Question>> questions_;  // by request; null: it is over
  std::atomic<std::uint64_t> num_late_ = 0;
};

}  // namespace quire
