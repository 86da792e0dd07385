#pragma once
// Disaggregated prefill: the connector of a server that keeps the blocks of prompts for other servers, or loads blocks that other servers
// computed. A request's kv_transfer_params say what to do; requests without them are ignored. The rules are as in vLLM's NIXL connector
// (v0.19.0), except for the last block of a prompt: only full blocks, which have block hashes, move between servers, and the consumer
// computes all tokens after them. Moved blocks are verified, and blocks that do not arrive are computed (peer_fetcher.h).
//
// States of a request with do_remote_prefill, and what moves it to the next state:
//   expected -> loading   allocated(), with tokens that match() has promised: the load is in the plan that is being made
//   expected -> over      allocated(), without tokens: the producer may free its blocks; finished(): the request has ended first
//   loading -> over       completed()
// States of a request with do_remote_decode:
//   expected -> kept      finished(), at its max_tokens: a store that stays open keeps its blocks until the consumer has them
//   expected -> over      finished(), for another reason, or because too many blocks are kept already
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
  std::uint32_t block_size = 16;  // in tokens
  std::uint32_t block_bytes = 0;
  std::uint32_t max_kept_blocks = 0;  // maximum number of blocks kept at a time; a shared block counts once per request
  // Address and id of this server that consumers receive.
  std::string engine_id;
  std::string host;
  std::uint16_t port = 0;
};

// Used on the engine thread only.
class PeerConnector final : public Connector {
 public:
  // Creates a connector. `store` and `transport` must outlive the connector.
  PeerConnector(PeerStore& store, StoreTransport& transport, PeerConnectorOptions options);

  // Registers a request. Called before the request is added to the core.
  void expect(RequestId request, const KvTransferParams& params);
  // Returns the parameters for the client when the request has ended; null if there are no parameters.
  std::shared_ptr<const KvTransferParams> take_transfer_params(RequestId request);
  // Renews, from time to time, the leases on the blocks that producers keep for requests that wait for admission.
  void renew(std::chrono::steady_clock::time_point now);
  [[nodiscard]] std::uint64_t num_loaded_tokens() const { return num_loaded_tokens_; }
  // Returns the number of requests and transfers that the connector remembers; 0 when all of them have ended.
  [[nodiscard]] std::size_t num_tracked() const {
    return transfer_requests_.size() + pending_.size() + open_transfers_.size() + answers_.size();
  }

  void bind(const Core& core) override { core_ = &core; }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override;
  // Finds nothing: no producer keeps blocks for a request that is not in the engine.
  bool peek(const RequestView& /*request*/, std::uint32_t /*num_local_tokens*/, std::vector<TierMatch>& /*matches*/) override {
    return true;
  }
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override;
  bool finished(const RequestView& request, GroupBlocks blocks) override;
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& plan, TransferList& transfers) override;
  void completed(const TransferCompletion& completion) override;
  void forget_blocks(const RequestView& request) override { release_kept_blocks(request.id); }
  void invalidated(const RequestView& request, std::uint32_t /*num_valid_tokens*/) override { release_kept_blocks(request.id); }
  // Releases blocks that the core frees before a plan keeps them.
  void sent(RequestId request) override { release_kept_blocks(request); }
  void step_output() override {}
  // Returns true without dropping blocks: kept blocks are promised to consumers, and loaded blocks belong to requests in the engine.
  bool reset() override { return true; }

 private:
  struct TransferRequest {
    KvTransferParams params;
    std::uint64_t ticket = 0;            // ticket of the fetcher's work, while the request is loading
    std::uint32_t num_local_tokens = 0;  // at the last match()
    std::chrono::steady_clock::time_point renewed;
  };
  struct OpenTransfer {
    RequestId request;
    TransferDirection direction = TransferDirection::load;
    std::uint64_t ticket = 0;
    std::vector<BlockId> blocks;
    std::vector<OffloadKey> names;
    std::vector<std::uint32_t> places;
    std::vector<std::uint64_t> numbers;  // numbers in Transfer::places, by block
  };

  [[nodiscard]] OpenTransfer make(const RequestView& request, TransferDirection direction, std::uint32_t first,
                                  std::span<const BlockId> blocks);
  void keep(const RequestView& request, std::span<const BlockId> blocks);
  void release(const OpenTransfer& moving);
  void release_kept_blocks(RequestId request);

  PeerStore& store_;
  StoreTransport& transport_;
  const PeerConnectorOptions options_;
  const Core* core_ = nullptr;
  std::vector<std::uint32_t> free_slots_;
  std::uint64_t next_ticket_ = 0;
  std::uint32_t num_kept_ = 0;  // in blocks
  std::uint64_t num_loaded_tokens_ = 0;
  std::unordered_map<RequestId, TransferRequest> transfer_requests_;                // requests that have not ended
  std::unordered_map<RequestId, std::shared_ptr<const KvTransferParams>> answers_;  // answers that are not taken yet
  std::vector<OpenTransfer> pending_;                                               // transfers for the next plan
  std::unordered_map<std::uint64_t, OpenTransfer> open_transfers_;                  // by transfer
};

}  // namespace quire
