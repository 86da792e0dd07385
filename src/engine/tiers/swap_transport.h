#pragma once
// Moves the blocks of preempted requests to slots in memory, and blocks with higher slot numbers to files. A transfer may have a part in
// each; it is over when both parts are over.
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
  // `memory` may be null: then all slots are in files.
  SwapTransport(std::shared_ptr<MemoryTransport> memory, const std::shared_ptr<DiskStore>& store, double timeout_seconds);

  void attach(const KvPages& pages, std::function<void()> notify) override;
  void start(const Transfer& transfer) override;
  void poll(std::vector<TransferCompletion>& over) override;
  void wait(TransferId transfer) override;
  void detach() override;

 private:
  struct OpenTransfer {
    std::uint32_t num_left = 0;  // parts that are not over
    TransferCompletion completion{};
    bool lists_failed_blocks = true;  // all parts that failed have listed their bad blocks
    std::vector<BlockId> bad{};
  };
  struct Part {
    std::vector<BlockId> blocks;
    std::vector<std::uint64_t> places;
  };
  std::uint64_t assign_number(const Transfer& transfer, std::uint32_t place);
  void take(std::vector<TransferCompletion>& parts);

  const std::shared_ptr<MemoryTransport> memory_;
  StoreTransport files_;
  const std::uint32_t num_memory_slots_;
  std::vector<std::uint64_t> numbers_;  // by slot in files: the number that a load carries
  std::uint64_t last_number_ = 0;
  std::map<TransferId, OpenTransfer> open_;
  std::vector<TransferCompletion> parts_;
  std::vector<OpenTransfer> reported_;
};

}  // namespace quire
