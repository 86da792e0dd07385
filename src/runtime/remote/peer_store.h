#pragma once
// Connects `StoreTransport` to blocks of other servers, as a `BlockStore` (block_store.h). A store job keeps a block for a consumer by a
// lease of peer_server.h. A load job gets a block from a producer by a fetch of peer_fetcher.h. A slot holds no bytes: it is only a number
// that connects a job to its lease or fetch.
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/remote/peer_fetcher.h"
#include "runtime/remote/peer_server.h"
#include "runtime/tier/block_store.h"

namespace quire {

// Any thread may call the functions.
class PeerStore final : public BlockStore {
 public:
  // `server` is null if this server keeps no blocks for others. `fetcher` is null if this server loads no blocks.
  PeerStore(std::unique_ptr<PeerServer> server, std::unique_ptr<PeerFetcher> fetcher, std::uint32_t num_places, std::uint64_t block_bytes)
      : block_bytes_(block_bytes), server_(std::move(server)), fetcher_(std::move(fetcher)), uses_(num_places) {}

  // The block that a job reads or writes: block `index` of the lease or fetch with the number `ticket`.
  struct Use {
    std::uint64_t ticket = 0;
    std::uint32_t index = 0;
  };
  // Sets the block of the next job with this slot.
  void use(std::uint32_t place, const Use& use);

  [[nodiscard]] std::uint32_t num_places() const override { return static_cast<std::uint32_t>(uses_.size()); }
  [[nodiscard]] std::uint64_t block_bytes() const override { return block_bytes_; }
  void submit(TierJob job) override;

  [[nodiscard]] PeerServer* server() const { return server_.get(); }
  [[nodiscard]] PeerFetcher* fetcher() const { return fetcher_.get(); }

 private:
  const std::uint64_t block_bytes_;
  const std::unique_ptr<PeerServer> server_;
  const std::unique_ptr<PeerFetcher> fetcher_;
  std::mutex mutex_;
  std::vector<Use> uses_;  // by slot; guarded by `mutex_`
};

}  // namespace quire
