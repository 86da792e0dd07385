#include "runtime/transport/routed_transport.h"

#include "base/check.h"

namespace quire {

RoutedTransport::RoutedTransport(std::shared_ptr<Transport> default_transport) : default_(default_transport.get()) {
  if (default_transport != nullptr) all_.push_back(std::move(default_transport));
}

void RoutedTransport::add(std::uint32_t tier, std::shared_ptr<Transport> transport) {
  const bool is_new = by_tier_.emplace(tier, transport.get()).second;
  QUIRE_CHECK(is_new, "a tier has one transport");
  all_.push_back(std::move(transport));
}

void RoutedTransport::attach(const KvPages& pages, std::function<void()> notify) {
  for (const std::shared_ptr<Transport>& transport : all_) transport->attach(pages, notify);
}

void RoutedTransport::start(const Transfer& transfer) {
  const auto found = by_tier_.find(transfer.tier);
  Transport* const transport = found != by_tier_.end() ? found->second : default_;
  QUIRE_CHECK(transport != nullptr, "the tier of a transfer has a transport");
  open_.emplace(transfer.id, transport);
  transport->start(transfer);
}

void RoutedTransport::poll(std::vector<TransferCompletion>& over) {
  const std::size_t num_before = over.size();
  for (const std::shared_ptr<Transport>& transport : all_) transport->poll(over);
  for (std::size_t i = num_before; i < over.size(); ++i) open_.erase(over[i].transfer);
}

void RoutedTransport::wait(TransferId transfer) {
  if (const auto found = open_.find(transfer); found != open_.end()) found->second->wait(transfer);
}

void RoutedTransport::wait_for_layer(TransferId transfer, std::uint32_t layer) {
  if (const auto found = open_.find(transfer); found != open_.end()) found->second->wait_for_layer(transfer, layer);
}

void RoutedTransport::layer_written(std::uint32_t layer) {
  for (const std::shared_ptr<Transport>& transport : all_) transport->layer_written(layer);
}

void RoutedTransport::detach() {
  for (const std::shared_ptr<Transport>& transport : all_) transport->detach();
}

}  // namespace quire
