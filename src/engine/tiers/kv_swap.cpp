// Slots for the blocks of preempted requests, in memory and, for higher slot numbers, in files. Created once, before the engine thread
// starts. create() measures how fast this machine moves blocks, because the core uses these rates to choose between swapping and
// recomputing. A later process cannot use the swap files, so they are removed when this object is destroyed.
#include "engine/tiers/kv_swap.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "quire/cache_folder.h"
#include "runtime/tier/tier_files.h"
#include "runtime/transport/routed_transport.h"

namespace quire {
namespace {

constexpr std::uint64_t kTrialBytes = std::uint64_t{4} << 20U;  // takes some milliseconds
constexpr double kSwapTimeout_s = 5.0;  // a transfer fails if the disk moves no bytes for this time; its blocks are recomputed
constexpr std::uint32_t kMaxSwapSlots = 1U << 24U;

std::uint64_t largest_block_bytes(const KvLayout& layout) {
  std::uint64_t bytes = 0;
  for (std::size_t group = 0; group < layout.groups.size(); ++group) bytes = std::max(bytes, layout.group_block_bytes(group));
  return bytes;
}

double per_second(std::uint64_t bytes, double seconds) {
  return seconds > 0.0 ? static_cast<double>(bytes) / seconds : 0.0;
}

std::string swap_folder(const KvSwapOptions& options) {
  return (std::filesystem::path(options.folder) / "quire-swap").string();
}

// Removes the swap files in the folder, unless a running process uses them.
void remove_swap_files(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::path(folder) / "quire-table", error)) return;
  if (auto opened = CacheFolder::open(folder)) (void)(*opened)->drop();
  // Removes the folder only if it is empty, so other files in it are kept.
  std::filesystem::remove(folder, error);
}

// Opens the store for swapped-out blocks. Removes the files of an earlier process, because their blocks are never read.
Result<std::shared_ptr<DiskStore>> open_files(const KvSwapOptions& options, const KvLayout& layout) {
  const std::string folder = swap_folder(options);
  remove_swap_files(folder);
  auto files = open_tier_folder(folder, TierIo::automatic);
  if (!files) return fail(files.error().code, "kv_swap_disk", files.error().message, files.error().remedy);
  auto store = DiskStore::open(*std::move(files),
                               {.budget_bytes = options.folder_bytes, .block_bytes = largest_block_bytes(layout), .fingerprint = {}});
  if (!store) return fail(store.error().code, "kv_swap_disk", store.error().message, store.error().remedy);
  return std::shared_ptr<DiskStore>(*std::move(store));
}

// Measures how fast the transport moves blocks of one page to its slots, starting at slot `first_place`, and back.
SwapCosts calibrate(Transport& transport, std::uint64_t block_bytes, std::uint32_t num_places, std::uint64_t first_place) {
  KvLayout layout;
  layout.page_bytes = {block_bytes};
  layout.groups.push_back({.spec = {}, .block_size = 1, .kernel_block_size = 1, .layers = {0}});
  layout.num_blocks = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kTrialBytes / block_bytes, 1, num_places));
  std::vector<std::byte> memory(layout.total_bytes(), std::byte{1});
  std::vector<BlockId> blocks;
  std::vector<std::uint64_t> places;
  for (std::uint32_t i = 0; i < layout.num_blocks; ++i) {
    blocks.push_back(BlockId{i});
    places.push_back(first_place + i);
  }
  transport.attach({.layout = &layout, .tensors = {memory.data()}}, [] {});
  SwapCosts costs;
  std::uint64_t id = 0;
  for (int round = 0; round < 2; ++round)
    for (const TransferDirection direction : {TransferDirection::store, TransferDirection::load}) {
      transport.start({.id = TransferId{id}, .request = {}, .direction = direction, .tier = kSwapTier, .blocks = blocks, .places = places});
      transport.wait(TransferId{id++});
      std::vector<TransferCompletion> over;
      transport.poll(over);
      const bool is_good = over.size() == 1 && over[0].outcome == TransferOutcome::done;
      double& rate = direction == TransferDirection::store ? costs.out_bytes_per_s : costs.in_bytes_per_s;
      rate = is_good ? per_second(over[0].bytes, over[0].seconds) : 0.0;
    }
  transport.detach();
  return costs;
}

}  // namespace

std::uint32_t num_memory_swap_slots(const KvSwapOptions& options, const KvLayout& layout) {
  const std::uint64_t block_bytes = largest_block_bytes(layout);
  return block_bytes == 0 ? 0 : static_cast<std::uint32_t>(std::min<std::uint64_t>(options.bytes / block_bytes, kMaxSwapSlots));
}

std::uint32_t num_disk_swap_slots(const KvSwapOptions& options, const KvLayout& layout) {
  if (options.folder.empty()) return 0;
  return std::min(num_slots_within(options.folder_bytes, padded_to_page(largest_block_bytes(layout))),
                  kMaxSwapSlots - num_memory_swap_slots(options, layout));
}

KvSwap::Folder::~Folder() {
  if (!path.empty()) remove_swap_files(path);
}

KvSwap::KvSwap(std::shared_ptr<MemoryTransport> memory, std::shared_ptr<DiskStore> store, std::string folder)
    : folder_{std::move(folder)}, memory_(std::move(memory)), store_(std::move(store)) {}

Result<std::shared_ptr<KvSwap>> KvSwap::create(const KvSwapOptions& options, const KvLayout& layout) {
  const std::uint64_t block_bytes = largest_block_bytes(layout);
  std::shared_ptr<MemoryTransport> memory;
  if (const std::uint32_t num_near = num_memory_swap_slots(options, layout); num_near > 0) {
    auto made = MemoryTransport::create({.num_places = num_near, .block_bytes = block_bytes});
    if (!made) return fail(made.error().code, "kv_swap", made.error().message, "use another size, or leave it out");
    memory = *std::move(made);
    calibrate(*memory, block_bytes, num_near, 0);
  }
  std::shared_ptr<DiskStore> store;
  if (!options.folder.empty()) {
    auto opened = open_files(options, layout);
    if (!opened) return std::unexpected(std::move(opened.error()));
    store = *std::move(opened);
  }
  std::shared_ptr<KvSwap> swap(new KvSwap(memory, store, store == nullptr ? std::string() : swap_folder(options)));
  if (store == nullptr) return swap;
  SwapTransport trial(nullptr, store, kSwapTimeout_s);
  const SwapCosts costs = calibrate(trial, block_bytes, store->num_places(), 0);
  swap->measured_ = {.disk_out_bytes_per_s = costs.out_bytes_per_s, .disk_in_bytes_per_s = costs.in_bytes_per_s};
  swap->transport_ = std::make_shared<SwapTransport>(memory, store, kSwapTimeout_s);
  return swap;
}

std::shared_ptr<Transport> KvSwap::transport_with(std::shared_ptr<Transport> others) const {
  auto routed = std::make_shared<RoutedTransport>(std::move(others));
  if (transport_ != nullptr)
    routed->add(kSwapTier, transport_);
  else
    routed->add(kSwapTier, memory_);
  return routed;
}

SwapCosts KvSwap::costs(double prefill_tokens_per_s) const {
  SwapCosts costs = measured_;
  costs.prefill_tokens_per_s = prefill_tokens_per_s;
  if (memory_ == nullptr) return costs;
  const MemoryTransportStats moved = memory_->stats();
  costs.out_bytes_per_s = per_second(moved.bytes_stored, moved.seconds_stored);
  costs.in_bytes_per_s = per_second(moved.bytes_loaded, moved.seconds_loaded);
  return costs;
}

KvSwapStats KvSwap::stats(const CoreCounters& counters) const {
  const SwapCosts measured = costs(0.0);
  const std::uint32_t num_near = memory_ == nullptr ? 0 : memory_->num_places();
  const std::uint32_t num_far = store_ == nullptr ? 0 : store_->num_places();
  const std::uint64_t num_refused =
      (memory_ == nullptr ? 0 : memory_->stats().num_refused) + (store_ == nullptr ? 0 : store_->stats().num_refused);
  return {.num_places = num_near + num_far,
          .num_slow_slots = num_far,
          .num_used_slots = counters.num_used_swap_slots,
          .place_bytes = memory_ == nullptr ? store_->block_bytes() : memory_->block_bytes(),
          .num_out = counters.num_swapped_out,
          .num_out_blocks = counters.num_swapped_out_blocks,
          .num_in = counters.num_swapped_in,
          .num_in_blocks = counters.num_swapped_in_blocks,
          .num_in_tokens = counters.num_swapped_in_tokens,
          .num_lost = counters.num_swaps_lost,
          .num_skipped_no_slot = counters.num_swaps_no_slot,
          .num_skipped_no_gain = counters.num_swaps_no_gain,
          .num_corrupted_blocks = num_refused,
          .out_bytes_per_s = measured.out_bytes_per_s,
          .in_bytes_per_s = measured.in_bytes_per_s,
          .disk_out_bytes_per_s = measured.disk_out_bytes_per_s,
          .disk_in_bytes_per_s = measured.disk_in_bytes_per_s};
}

}  // namespace quire
