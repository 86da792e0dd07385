#include "runtime/transport/routed_transport.h"

#include "base/check.h"

namespace quire {

void RoutedTransport::add(std::uint32_t tier, std::shared_ptr<Transport> transport) {
  const bool is_new = by_tier_.emplace(tier, std::move(transport)).second;
  QUIRE_CHECK(is_new, "a tier has one transport");
}

void RoutedTransport::attach(const KvPages& pages, std::function<void()> notify) {
  for (const auto& [tier, transport] : by_tier_) transport->attach(pages, notify);
}

void RoutedTransport::start(const Transfer& transfer) {
  const auto found = by_tier_.find(transfer.tier);
  QUIRE_CHECK(found != by_tier_.end(), "a transfer is of a tier that the engine has");
  open_.emplace(transfer.id, found->second.get());
  found->second->start(transfer);
}

void RoutedTransport::poll(std::vector<TransferCompletion>& over) {
  const std::size_t num_before = over.size();
  for (const auto& [tier, transport] : by_tier_) transport->poll(over);
  for (std::size_t i = num_before; i < over.size(); ++i) open_.erase(over[i].transfer);
}

void RoutedTransport::wait(TransferId transfer) {
  if (const auto found = open_.find(transfer); found != open_.end()) found->second->wait(transfer);
}

void RoutedTransport::wait_for_layer(TransferId transfer, std::uint32_t layer) {
  if (const auto found = open_.find(transfer); found != open_.end()) found->second->wait_for_layer(transfer, layer);
}

void RoutedTransport::layer_written(std::uint32_t layer) {
  for (const auto& [tier, transport] : by_tier_) transport->layer_written(layer);
}

void RoutedTransport::detach() {
  for (const auto& [tier, transport] : by_tier_) transport->detach();
}

}  // namespace quire
