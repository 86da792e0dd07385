#include "engine/tiers/kv_swap.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/transport/routed_transport.h"

namespace quire {
namespace {

constexpr std::uint64_t kTrialBytes = std::uint64_t{4} << 20U;  // some milliseconds
constexpr std::uint32_t kMostSwapPlaces = 1U << 24U;

std::uint64_t largest_block_bytes(const KvLayout& layout) {
  std::uint64_t bytes = 0;
  for (std::size_t group = 0; group < layout.groups.size(); ++group) bytes = std::max(bytes, layout.group_block_bytes(group));
  return bytes;
}

double per_second(std::uint64_t bytes, double seconds) {
  return seconds > 0.0 ? static_cast<double>(bytes) / seconds : 0.0;
}

}  // namespace

std::uint32_t num_swap_places(const KvSwapOptions& options, const KvLayout& layout) {
  const std::uint64_t block_bytes = largest_block_bytes(layout);
  return block_bytes == 0 ? 0 : static_cast<std::uint32_t>(std::min<std::uint64_t>(options.bytes / block_bytes, kMostSwapPlaces));
}

Result<std::shared_ptr<KvSwap>> KvSwap::create(const KvSwapOptions& options, const KvLayout& layout) {
  auto transport = MemoryTransport::create({.num_places = num_swap_places(options, layout), .block_bytes = largest_block_bytes(layout)});
  if (!transport) return fail(transport.error().code, "kv_swap", transport.error().message, "give it other memory, or none");
  std::shared_ptr<KvSwap> swap(new KvSwap(*std::move(transport)));
  swap->calibrate();
  return swap;
}

// Blocks of one page each.
// There and back, twice. Without it nothing would be known of the costs when the first request has to give way.
void KvSwap::calibrate() {
  KvLayout layout;
  layout.page_bytes = {transport_->block_bytes()};
  layout.groups.push_back({.spec = {}, .block_size = 1, .kernel_block_size = 1, .layers = {0}});
  layout.num_blocks =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kTrialBytes / transport_->block_bytes(), 1, transport_->num_places()));
  std::vector<std::byte> memory(layout.total_bytes(), std::byte{1});
  std::vector<BlockId> blocks;
  std::vector<std::uint64_t> places;
  for (std::uint32_t i = 0; i < layout.num_blocks; ++i) {
    blocks.push_back(BlockId{i});
    places.push_back(i);
  }
  transport_->attach({.layout = &layout, .tensors = {memory.data()}}, [] {});
  std::uint64_t id = 0;
  for (int round = 0; round < 2; ++round)
    for (const TransferDirection direction : {TransferDirection::store, TransferDirection::load}) {
      transport_->start(
          {.id = TransferId{id}, .request = {}, .direction = direction, .tier = kSwapTier, .blocks = blocks, .places = places});
      transport_->wait(TransferId{id++});
    }
  // Taken out, so that the worker's first poll() finds only its own.
  std::vector<TransferCompletion> over;
  transport_->poll(over);
  transport_->detach();
}

std::shared_ptr<Transport> KvSwap::transport_beside(std::shared_ptr<Transport> others) const {
  auto routed = std::make_shared<RoutedTransport>(std::move(others));
  routed->add(kSwapTier, transport_);
  return routed;
}

SwapCosts KvSwap::costs(double prefill_tokens_per_s) const {
  const MemoryTransportStats moved = transport_->stats();
  return {.out_bytes_per_s = per_second(moved.bytes_stored, moved.seconds_stored),
          .in_bytes_per_s = per_second(moved.bytes_loaded, moved.seconds_loaded),
          .prefill_tokens_per_s = prefill_tokens_per_s};
}

KvSwapStats KvSwap::stats(const CoreCounters& counters) const {
  const SwapCosts measured = costs(0.0);
  return {.num_places = transport_->num_places(),
          .num_used_places = counters.num_used_swap_places,
          .place_bytes = transport_->block_bytes(),
          .num_out = counters.num_swapped_out,
          .num_out_blocks = counters.num_swapped_out_blocks,
          .num_in = counters.num_swapped_in,
          .num_in_blocks = counters.num_swapped_in_blocks,
          .num_in_tokens = counters.num_swapped_in_tokens,
          .num_lost = counters.num_swaps_lost,
          .num_no_place = counters.num_swaps_no_place,
          .num_no_gain = counters.num_swaps_no_gain,
          .num_refused_blocks = transport_->stats().num_refused,
          .out_bytes_per_s = measured.out_bytes_per_s,
          .in_bytes_per_s = measured.in_bytes_per_s};
}

}  // namespace quire
