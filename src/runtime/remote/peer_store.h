#pragma once
// Blocks of other servers as a store (block_store.h), so that StoreTransport moves them: what is stored is kept for a consumer, by a lease
// of peer_server.h, and what is loaded comes from a producer, by an errand of peer_fetcher.h. A place is a number that says which of the
// two a job belongs to; it holds nothing itself.
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/remote/peer_fetcher.h"
#include "runtime/remote/peer_server.h"
#include "runtime/tier/block_store.h"

namespace quire {

// Any thread.
class PeerStore final : public BlockStore {
 public:
  // Null: it keeps nothing for others, or loads nothing.
  PeerStore(std::unique_ptr<PeerServer> server, std::unique_ptr<PeerFetcher> fetcher, std::uint32_t num_places, std::uint64_t block_bytes)
      : block_bytes_(block_bytes), server_(std::move(server)), fetcher_(std::move(fetcher)), uses_(num_places) {}

  // Of the next job with this place: block `index` of a lease, or of an errand.
  struct Use {
    std::uint64_t ticket = 0;
    std::uint32_t index = 0;
  };
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
  std::vector<Use> uses_;  // by place; guarded by mutex_
};

}  // namespace quire
