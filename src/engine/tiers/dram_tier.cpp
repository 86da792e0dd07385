// Implements the tier in host memory. The tier is created before the engine runs. Afterwards the engine thread calls maintain() and
// stats(), and the core calls the connector on the same thread, which calls assign(), left() and dropped(). The transport's threads move
// the bytes; no function here waits for them.
#include "engine/tiers/dram_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/tiers/tier_check.h"

namespace quire {
namespace {

constexpr std::uint64_t kMaxSlots = std::uint64_t{1} << 28U;  // the limit of a ledger

}  // namespace

Result<std::shared_ptr<DramTier>> DramTier::create(const KvDramOptions& options, const CoreConfig& config, const KvLayout& layout) {
  if (Result<void> checked = check_tier(config, "kv_dram"); !checked) return std::unexpected(std::move(checked.error()));
  const std::uint64_t block_bytes = std::ranges::max(group_block_bytes(layout));
  const std::uint64_t num_places = options.bytes / block_bytes;
  if (num_places == 0 || num_places > kMaxSlots) {
    return fail(ErrorCode::invalid_argument, "kv_dram",
                fmt::format("{} bytes hold {} blocks of {} bytes", options.bytes, num_places, block_bytes),
                fmt::format("use a size that holds 1 to {} blocks", kMaxSlots));
  }
  auto transport = MemoryTransport::create({.num_places = static_cast<std::uint32_t>(num_places),
                                            .block_bytes = block_bytes,
                                            .yields_cores = options.policy == KvTierPolicy::measured});
  if (!transport) return fail(transport.error().code, "kv_dram", transport.error().message, transport.error().remedy);
  std::shared_ptr<DramTier> tier(new DramTier(*std::move(transport), options, group_block_bytes(layout)));
  auto connector =
      OffloadConnector::create(tier_connector_options(num_places * block_bytes, options, config), config, block_bytes, tier.get());
  if (!connector) return std::unexpected(std::move(connector.error()));
  tier->connector_ = *std::move(connector);
  // Reports all slots as empty: the connector treats every slot as unread until restore() is called for it.
  for (std::uint32_t place = 0; place < num_places; ++place) tier->connector_->restore(OffloadSlot{place}, nullptr);
  return tier;
}

DramTier::DramTier(std::unique_ptr<MemoryTransport> transport, const KvDramOptions& options, std::vector<std::uint64_t> group_bytes)
    : transport_(std::move(transport)), group_bytes_(std::move(group_bytes)), options_(options), load_rate_(kLoadHorizon_s) {}

std::uint64_t DramTier::assign(std::uint64_t place, const OffloadKey& key) {
  const std::uint64_t number = transport_->assign(static_cast<std::uint32_t>(place), key);
  if (peer_index_ != nullptr) peer_index_->put(static_cast<std::uint32_t>(place), key, number);
  return number;
}

std::shared_ptr<PeerBlockSource> DramTier::share(const std::shared_ptr<DramTier>& tier) {
  tier->peer_index_ = std::make_unique<DramPeerIndex>(*tier->transport_, tier->group_bytes_);
  return {tier, tier->peer_index_.get()};
}

void DramTier::dropped(const OffloadKey& key) {
  if (peer_index_ != nullptr) peer_index_->remove(key);
}

void DramTier::left(const OffloadKey& key) {
  dropped(key);
  if (lower_ != nullptr && lower_->ref_count(key).value_or(-1) < 0) ++num_dropped_;
}

bool DramTier::maintain(double compute_tokens_per_s) {
  const MemoryTransportStats moved = transport_->stats();
  const auto bytes = static_cast<double>(moved.bytes_loaded - std::exchange(bytes_loaded_, moved.bytes_loaded));
  load_rate_.add(bytes, moved.seconds_loaded - std::exchange(seconds_loaded_, moved.seconds_loaded));
  if (options_.policy == KvTierPolicy::exact) return false;
  const TierCosts before =
      std::exchange(costs_, {.load_bytes_per_s = load_rate_.per_second(), .compute_tokens_per_s = compute_tokens_per_s});
  connector_->set_costs(costs_);
  return costs_ != before;
}

void DramTier::take_events(const TierBlockFormat& format, std::vector<KvEvent>& out) {
  take_tier_events(*connector_, format, "CPU", out);
}

KvTierStats DramTier::stats() const {
  const MemoryTransportStats moved = transport_->stats();
  const OffloadLedger& ledger = connector_->ledger();
  return {.name = "dram",
          .budget_bytes = options_.bytes,
          .place_bytes = transport_->block_bytes(),
          .num_places = ledger.num_slots(),
          .num_used_slots = ledger.num_slots() - ledger.num_free(),
          .num_stored_blocks = moved.num_stored,
          .num_loaded_blocks = moved.num_loaded,
          .bytes_stored = moved.bytes_stored,
          .bytes_loaded = moved.bytes_loaded,
          .tokens_loaded = connector_->counters().num_loaded_tokens,
          .num_without_slot = connector_->num_left_out(),
          .num_corrupted_blocks = moved.num_refused,
          .num_failed_blocks = moved.num_in_use,
          .num_deferred_by_limit = connector_->counters().num_deferred_by_limit,
          .num_stored_when_idle = connector_->counters().num_stored_when_idle,
          .num_computed_tokens = connector_->counters().num_computed_tokens,
          .load_bytes_per_s = load_rate_.per_second(),
          .compute_tokens_per_s = costs_.compute_tokens_per_s,
          .num_dropped_blocks = num_dropped_};
}

}  // namespace quire
