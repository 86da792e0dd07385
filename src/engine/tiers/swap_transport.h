#pragma once
// Moves the blocks of preempted requests to slots in memory or, for higher slot numbers, in files. A transfer may have a part in memory and
// a part in files, and is over when both parts are over.
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
  // Creates a transport. If `memory` is null, all slots are in files.
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
    bool lists_failed_blocks = true;  // all failed parts so far have listed their failed blocks
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
  std::vector<std::uint64_t> numbers_;  // for each slot in files, its number in transfers
  std::uint64_t last_number_ = 0;
  std::map<TransferId, OpenTransfer> open_;
  std::vector<TransferCompletion> parts_;
  std::vector<OpenTransfer> reported_;
};

}  // namespace quire
