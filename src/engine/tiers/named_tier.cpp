#include "engine/tiers/named_tier.h"

#include <utility>

#include "engine/tiers/tier_check.h"

namespace quire {

class NamedTier::CountedTransfers final : public TransferList {
 public:
  CountedTransfers(TransferList& transfers, std::unordered_map<std::uint64_t, OpenTransfer>& open_transfers)
      : transfers_(transfers), open_transfers_(open_transfers) {}
  std::optional<TransferId> add(const Transfer& transfer) override {
    const std::optional<TransferId> id = transfers_.add(transfer);
    if (id) open_transfers_.emplace(id->value, OpenTransfer{.direction = transfer.direction, .num_blocks = transfer.blocks.size()});
    return id;
  }

 private:
  TransferList& transfers_;
  std::unordered_map<std::uint64_t, OpenTransfer>& open_transfers_;
};

NamedTier::NamedTier(std::string name, ConnectorAndTransport halves, KvTierPolicy policy, std::uint64_t block_bytes)
    : name_(std::move(name)),
      halves_(std::move(halves)),
      offload_(dynamic_cast<OffloadConnector*>(halves_.connector.get())),
      policy_(policy),
      block_bytes_(block_bytes),
      load_rate_(kLoadHorizon_s) {}

void NamedTier::allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) {
  num_external_tokens_ += num_external_tokens;
  halves_.connector->allocated(request, blocks, num_external_tokens);
}

void NamedTier::plan_transfers(const StepPlan& plan, TransferList& transfers) {
  CountedTransfers counted(transfers, open_transfers_);
  halves_.connector->plan_transfers(plan, counted);
}

void NamedTier::completed(const TransferCompletion& completion) {
  if (const auto found = open_transfers_.find(completion.transfer.value); found != open_transfers_.end()) {
    const OpenTransfer moving = found->second;
    open_transfers_.erase(found);
    const bool has_failed = completion.outcome == TransferOutcome::failed;
    const std::uint64_t num_bad = !has_failed ? 0 : completion.bad_blocks.empty() ? moving.num_blocks : completion.bad_blocks.size();
    TransferTotal& moved = totals_[static_cast<std::size_t>(moving.direction)];
    moved.num_blocks += moving.num_blocks - num_bad;
    moved.bytes += completion.bytes;
    moved.seconds += completion.seconds;
    num_failed_blocks_ += num_bad;
  }
  halves_.connector->completed(completion);
}

bool NamedTier::maintain(double compute_tokens_per_s) {
  const TransferTotal& loaded = totals_[static_cast<std::size_t>(TransferDirection::load)];
  const TransferTotal before = std::exchange(measured_, loaded);
  load_rate_.add(static_cast<double>(loaded.bytes - before.bytes), loaded.seconds - before.seconds);
  if (policy_ == KvTierPolicy::exact || offload_ == nullptr) return false;
  const TierCosts costs_before =
      std::exchange(costs_, {.load_bytes_per_s = load_rate_.per_second(), .compute_tokens_per_s = compute_tokens_per_s});
  offload_->set_costs(costs_);
  return costs_ != costs_before;
}

void NamedTier::take_events(const TierBlockFormat& format, std::vector<KvEvent>& out) {
  if (offload_ == nullptr) return;
  take_tier_events(*offload_, {.hash_bytes = format.hash_bytes, .block_size = format.block_size * offload_->blocks_per_key()}, "CPU", out);
}

KvTierStats NamedTier::stats() const {
  const TransferTotal& loaded = totals_[static_cast<std::size_t>(TransferDirection::load)];
  const TransferTotal& stored = totals_[static_cast<std::size_t>(TransferDirection::store)];
  KvTierStats stats{.name = name_,
                    .num_stored_blocks = stored.num_blocks,
                    .num_loaded_blocks = loaded.num_blocks,
                    .bytes_stored = stored.bytes,
                    .bytes_loaded = loaded.bytes,
                    .tokens_loaded = num_external_tokens_,
                    .num_failed_blocks = num_failed_blocks_,
                    .load_bytes_per_s = load_rate_.per_second()};
  if (offload_ == nullptr) return stats;
  const OffloadLedger& ledger = offload_->ledger();
  stats.budget_bytes = std::uint64_t{ledger.num_slots()} * offload_->blocks_per_key() * block_bytes_;
  stats.place_bytes = block_bytes_ * offload_->blocks_per_key();
  stats.num_places = ledger.num_slots();
  stats.num_used_slots = ledger.num_slots() - ledger.num_free();
  const OffloadCounters& counters = offload_->counters();
  stats.tokens_loaded = counters.num_loaded_tokens;
  stats.num_without_slot = offload_->num_left_out();
  stats.num_deferred_by_limit = counters.num_deferred_by_limit;
  stats.num_stored_when_idle = counters.num_stored_when_idle;
  stats.num_computed_tokens = counters.num_computed_tokens;
  stats.compute_tokens_per_s = costs_.compute_tokens_per_s;
  return stats;
}

}  // namespace quire
