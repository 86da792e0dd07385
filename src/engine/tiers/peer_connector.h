#pragma once
// Prefill and decode apart: the connector of a server that keeps the blocks of prompts for others, or loads what others have computed. What
// a request is for says its kv_transfer_params; one without them is none of its business. The rules are those of vLLM's NIXL connector
// (v0.19.0), but for the last block of a prompt: only full blocks, which have names, go from one server to the other, and the token behind
// them and all that follow are computed here. What is moved is verified, and what does not come is computed (peer_fetcher.h).
//
// States of a request with do_remote_prefill, and who moves it on:
//   expected -> loading   allocated(), with tokens that match() has promised: the load is in the plan that is being made
//   expected -> over      allocated(), without: the producer is told that its blocks may go; finished(): it has ended before
//   loading -> over       completed()
// and with do_remote_decode:
//   expected -> kept      finished(), at its max_tokens: its blocks stay, by a store that is open until the consumer has them
//   expected -> over      finished(), for another reason, or where too many blocks are kept already
//   kept -> over          completed()
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "quire/base/kv_transfer_params.h"
#include "quire/connector.h"
#include "quire/offload.h"
#include "runtime/remote/peer_store.h"
#include "runtime/tier/store_transport.h"

namespace quire {

struct PeerConnectorOptions {
  std::uint32_t block_size = 16;  // tokens
  std::uint32_t block_bytes = 0;
  std::uint32_t most_kept = 0;  // blocks for others at a time, those that several requests have counted for each
  // What consumers are told.
  std::string engine_id;
  std::string host;
  std::uint16_t port = 0;
};

// The engine's thread.
class PeerConnector final : public Connector {
 public:
  // Both outlive it.
  PeerConnector(PeerStore& store, StoreTransport& transport, PeerConnectorOptions options);

  // Before the core is told of the request.
  void expect(RequestId request, const KvTransferParams& params);
  // What its client is told when it has ended; null: nothing.
  std::shared_ptr<const KvTransferParams> take_answer(RequestId request);
  // Of requests that wait for their turn: the producer is to keep their blocks, once in a while.
  void renew(std::chrono::steady_clock::time_point now);
  [[nodiscard]] std::uint64_t num_loaded_tokens() const { return num_loaded_tokens_; }
  // Requests and transfers of which it remembers something; none when all is over.
  [[nodiscard]] std::size_t num_tracked() const { return given_.size() + pending_.size() + moving_.size() + answers_.size(); }

  void bind(const Core& core) override { core_ = &core; }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override;
  // No producer keeps anything for a request that is not there.
  bool peek(const RequestView& /*request*/, std::uint32_t /*num_local_tokens*/, std::vector<TierMatch>& /*matches*/) override {
    return true;
  }
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override;
  bool finished(const RequestView& request, GroupBlocks blocks) override;
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& plan, TransferList& transfers) override;
  void completed(const TransferCompletion& completion) override;
  void forget_blocks(const RequestView& request) override { drop_kept(request.id); }
  void spoiled(const RequestView& request, std::uint32_t /*num_good_tokens*/) override { drop_kept(request.id); }
  // Should the core give the blocks back before they were kept.
  void sent(RequestId request) override { drop_kept(request); }
  void step_output() override {}
  // What is kept for others has been promised, and what comes from them is of requests that are there.
  bool reset() override { return true; }

 private:
  struct Given {
    KvTransferParams params;
    std::uint64_t ticket = 0;            // of its errand, while it is loading
    std::uint32_t num_local_tokens = 0;  // when it was matched
    std::chrono::steady_clock::time_point renewed;
  };
  struct Moving {
    RequestId request;
    TransferDirection direction = TransferDirection::load;
    std::uint64_t ticket = 0;
    std::vector<BlockId> blocks;
    std::vector<OffloadKey> names;
    std::vector<std::uint32_t> places;
    std::vector<std::uint64_t> numbers;  // what the transfer carries
  };

  [[nodiscard]] Moving make(const RequestView& request, TransferDirection direction, std::uint32_t first, std::span<const BlockId> blocks);
  void keep(const RequestView& request, std::span<const BlockId> blocks);
  void let_go(const Moving& moving);
  void drop_kept(RequestId request);

  PeerStore& store_;
  StoreTransport& transport_;
  const PeerConnectorOptions options_;
  const Core* core_ = nullptr;
  std::vector<std::uint32_t> free_places_;
  std::uint64_t next_ticket_ = 0;
  std::uint32_t num_kept_ = 0;  // blocks
  std::uint64_t num_loaded_tokens_ = 0;
  std::unordered_map<RequestId, Given> given_;                                      // that have not ended
  std::unordered_map<RequestId, std::shared_ptr<const KvTransferParams>> answers_;  // that nobody has taken yet
  std::vector<Moving> pending_;                                                     // for the next plan
  std::unordered_map<std::uint64_t, Moving> moving_;                                // by transfer
};

}  // namespace quire
