// Runs the contract of transports (transport_contract.h) for a store in the network.
#include "runtime/remote/remote_store.h"
#include "runtime/remote/toy_redis.h"
#include "runtime/tier/store_transport.h"
#include "runtime/tier/transport_contract.h"

namespace quire::test {
namespace {

class TestedRemote final : public TestedTransport {
 public:
  TestedRemote() { renew(); }
  void renew() override { transport_ = std::make_unique<StoreTransport>(store_, 60.0); }
  Transport& transport() override { return *transport_; }
  std::uint64_t assign(std::uint32_t place, const OffloadKey& name) override { return transport_->assign(place, name); }
  std::uint32_t num_places() override { return store_->num_places(); }

 private:
  ToyRedis redis_;
  std::shared_ptr<RemoteStore> store_ = RemoteStore::open({.address = parse_remote_address(redis_.url()).value(),
                                                           .secret = std::vector(16, std::byte{9}),
                                                           .fingerprint = tier_fingerprint(),
                                                           .num_places = 80,
                                                           .group_bytes = {9000, 9000, 9000},
                                                           .ttl_s = 60,
                                                           .timeout_s = 30.0})
                                            .value();
  std::unique_ptr<StoreTransport> transport_;
};

INSTANTIATE_TEST_SUITE_P(Remote, TransportContractTest,
                         testing::Values(TransportWay{"remote", [](const TempFolder&) { return std::make_unique<TestedRemote>(); }}),
                         transport_way_name);

}  // namespace
}  // namespace quire::test
