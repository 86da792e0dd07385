#pragma once
// Moves the blocks of preempted requests to places in memory, and those of higher numbers to files: a transfer's parts go each its own way,
// and it is over when both are.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "quire/transport.h"
#include "runtime/tier/disk_store.h"
#include "runtime/tier/memory_transport.h"
#include "runtime/tier/store_transport.h"

namespace quire {

class SwapTransport final : public Transport {
 public:
  // `memory` may be null: then all places are in files.
  SwapTransport(std::shared_ptr<MemoryTransport> memory, const std::shared_ptr<DiskStore>& store, double patience_seconds);

  void attach(const KvPages& pages, std::function<void()> notify) override;
  void start(const Transfer& transfer) override;
  void poll(std::vector<TransferCompletion>& over) override;
  void wait(TransferId transfer) override;
  void detach() override;

 private:
  struct Open {
    std::uint32_t num_left = 0;  // parts
    TransferCompletion completion{};
    bool names_bad = true;  // each part that failed says which blocks are bad
    std::vector<BlockId> bad{};
  };
  struct Part {
    std::vector<BlockId> blocks;
    std::vector<std::uint64_t> places;
  };
  std::uint64_t name_place(const Transfer& transfer, std::uint32_t place);
  void take(std::vector<TransferCompletion>& parts);

  const std::shared_ptr<MemoryTransport> memory_;
  StoreTransport files_;
  const std::uint32_t num_near_;
  std::vector<std::uint64_t> numbers_;  // by place in files: what loads carry
  std::uint64_t last_name_ = 0;
  std::map<TransferId, Open> open_;
  std::vector<TransferCompletion> parts_;
  std::vector<Open> told_;
};

}  // namespace quire
