#pragma once
// Several transports as one: a transfer goes to the one of its tier.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "quire/transport.h"

namespace quire {

// Made with the engine; start(), poll() and the waits are called by the thread that leads the step. A transfer is sent by its tier and
// found again by its id until poll() has told of it.
class RoutedTransport final : public Transport {
 public:
  // Before attach(). One for each tier, which no other has; `rest`, if given, is for all others.
  explicit RoutedTransport(std::shared_ptr<Transport> rest = nullptr);
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
  std::vector<std::shared_ptr<Transport>> all_;  // the rest first
  std::map<std::uint32_t, Transport*> by_tier_;
  Transport* rest_;
  std::map<TransferId, Transport*> open_;  // begun, and not told of yet
};

}  // namespace quire
