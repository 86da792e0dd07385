#pragma once
// Several transports as one: a transfer goes to the one of its tier.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "quire/transport.h"

namespace quire {

class RoutedTransport final : public Transport {
 public:
  // Before attach(). One for each tier, which no other has.
  void add(std::uint32_t tier, std::shared_ptr<Transport> transport);

  void attach(const KvPages& pages, std::function<void()> notify) override;
  // There must be one for the transfer's tier.
  void start(const Transfer& transfer) override;
  void poll(std::vector<TransferCompletion>& over) override;
  void wait(TransferId transfer) override;
  void wait_for_layer(TransferId transfer, std::uint32_t layer) override;
  void layer_written(std::uint32_t layer) override;
  void detach() override;

 private:
  std::map<std::uint32_t, std::shared_ptr<Transport>> by_tier_;
  std::map<TransferId, Transport*> open_;  // begun, and not told of yet
};

}  // namespace quire
