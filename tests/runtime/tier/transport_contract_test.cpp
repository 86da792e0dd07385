// Runs the contract of transports (transport_contract.h) for folders, host memory and the simulated device.
#include "runtime/tier/transport_contract.h"

#include "runtime/tier/memory_files.h"
#include "runtime/tier/memory_transport.h"
#include "runtime/tier/store_transport.h"
#include "support/simulated_device.h"

namespace quire::test {
namespace {

class TestedDisk final : public TestedTransport {
 public:
  explicit TestedDisk(std::unique_ptr<DiskStore> store) : store_(std::move(store)) { renew(); }
  void renew() override { transport_ = std::make_unique<StoreTransport>(store_, 60.0); }
  Transport& transport() override { return *transport_; }
  std::uint64_t assign(std::uint32_t place, const OffloadKey& name) override { return transport_->assign(place, name); }
  std::uint32_t num_places() override { return store_->num_places(); }

 private:
  std::shared_ptr<DiskStore> store_;
  std::unique_ptr<StoreTransport> transport_;
};

class TestedMemory final : public TestedTransport {
 public:
  void renew() override {}
  Transport& transport() override { return *transport_; }
  std::uint64_t assign(std::uint32_t place, const OffloadKey& name) override { return transport_->assign(place, name); }
  std::uint32_t num_places() override { return transport_->num_places(); }

 private:
  std::unique_ptr<MemoryTransport> transport_ = MemoryTransport::create({.num_places = 80, .block_bytes = 9000}).value();
};

class TestedDevice final : public TestedTransport {
 public:
  void renew() override {}
  Transport& transport() override { return device_; }
  std::uint64_t assign(std::uint32_t place, const OffloadKey& name) override { return device_.assign(place, name); }
  std::uint32_t num_places() override { return device_.num_places(); }

 private:
  SimulatedDevice device_{80};
};

std::unique_ptr<TestedTransport> tested_disk(std::unique_ptr<TierFiles> files) {
  auto store = DiskStore::open(std::move(files), {.budget_bytes = 1 << 20, .block_bytes = 9000, .fingerprint = tier_fingerprint()});
  if (!store && store.error().field == "io") return nullptr;
  return std::make_unique<TestedDisk>(*std::move(store));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, TransportContractTest,
    testing::Values(
        TransportWay{"io_uring", [](const TempFolder& folder) { return tested_disk(tier_folder(folder.path(), TierIo::io_uring)); }},
        TransportWay{"threads", [](const TempFolder& folder) { return tested_disk(tier_folder(folder.path(), TierIo::threads)); }},
        TransportWay{"memory_disk",
                     [](const TempFolder&) { return tested_disk(std::make_unique<MemoryFiles>(std::make_shared<MemoryDisk>())); }},
        TransportWay{"host_memory", [](const TempFolder&) { return std::make_unique<TestedMemory>(); }},
        TransportWay{"simulated_device", [](const TempFolder&) { return std::make_unique<TestedDevice>(); }}),
    transport_way_name);

}  // namespace
}  // namespace quire::test
