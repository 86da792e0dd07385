#pragma once
// Joins several transports into one, which passes each transfer to the transport of its tier.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "quire/transport.h"

namespace quire {

// Created with the engine. The thread that leads the step calls start(), poll() and the waits. start() chooses the transport by the
// transfer's tier. Later calls find the transport by the transfer's ID until poll() has reported the end of the transfer.
class RoutedTransport final : public Transport {
 public:
  // Transports must be added before attach(). Each tier has one transport, and each transport one tier. `default_transport`, if given,
  // moves the transfers of all other tiers.
  explicit RoutedTransport(std::shared_ptr<Transport> default_transport = nullptr);
  void add(std::uint32_t tier, std::shared_ptr<Transport> transport);

  void attach(const KvPages& pages, std::function<void()> notify) override;
  // There must be a transport for the transfer's tier.
  void start(const Transfer& transfer) override;
  void poll(std::vector<TransferCompletion>& over) override;
  void wait(TransferId transfer) override;
  void wait_for_layer(TransferId transfer, std::uint32_t layer) override;
  void layer_written(std::uint32_t layer) override;
  void detach() override;

 private:
  std::vector<std::shared_ptr<Transport>> all_;  // `default_transport` comes first
  std::map<std::uint32_t, Transport*> by_tier_;
  Transport* default_;
  std::map<TransferId, Transport*> open_;  // transfers whose end poll() has not reported
};

}  // namespace quire
