#include "runtime/tier/disk_store.h"

#include <fmt/format.h>

#include "base/check.h"
#include "runtime/tier/disk_mover.h"
#include "runtime/tier/disk_places.h"
#include "runtime/tier/tier_opening.h"

namespace quire {

namespace {

constexpr std::uint32_t kMostDepth = 256;

}  // namespace

// Each direction has its queue and its thread.
// Movers before places before files, in the order in which they must end: movers finish what is under way.
struct DiskStore::State {
  State(std::unique_ptr<TierFiles> opened, const OpenedTier& tier, std::uint64_t bytes)
      : files(std::move(opened)), places(*files, tier), block_bytes(bytes) {}

  const std::unique_ptr<TierFiles> files;
  DiskPlaces places;
  const std::uint64_t block_bytes;
  std::unique_ptr<DiskMover> loads, stores;
};

Result<std::unique_ptr<DiskStore>> DiskStore::open(std::unique_ptr<TierFiles> files, const DiskStoreOptions& options) {
  if (options.block_bytes == 0 || options.block_bytes > kMostTierBlockBytes)
    return fail(ErrorCode::invalid_argument, "block_bytes", fmt::format("{} is not 1 to {}", options.block_bytes, kMostTierBlockBytes),
                "choose a smaller block_size");
  if (options.depth == 0 || options.depth > kMostDepth)
    return fail(ErrorCode::invalid_argument, "depth", fmt::format("{} is not 1 to {}", options.depth, kMostDepth));
  const TierShape shape{options.budget_bytes, padded_to_page(options.block_bytes), options.fingerprint};
  const Result<OpenedTier> tier = open_tier(*files, shape);
  if (!tier) return std::unexpected(tier.error());
  auto state = std::make_unique<State>(std::move(files), *tier, options.block_bytes);
  for (const TierJob::Verb verb : {TierJob::Verb::load, TierJob::Verb::store}) {
    std::unique_ptr<BlockQueue> queue = state->files->open_queue(DiskMover::kBuffersPerDepth * options.depth);
    if (queue == nullptr)
      return fail(ErrorCode::unsupported, "io", "this build or this kernel has no io_uring", "leave the choice to quire, or take threads");
    std::unique_ptr<DiskMover>& mover = verb == TierJob::Verb::load ? state->loads : state->stores;
    mover = DiskMover::start(state->places, std::move(queue),
                             {.verb = verb,
                              .depth = options.depth,
                              .place_bytes = tier->header.place_bytes,
                              .bytes_per_second = options.bytes_per_second,
                              .gives_way = options.gives_way && verb == TierJob::Verb::store});
    if (mover == nullptr)
      return fail(ErrorCode::too_large, "depth",
                  fmt::format("there is no memory for {} blocks of {} bytes", options.depth, shape.place_bytes), "move fewer at a time");
  }
  return std::unique_ptr<DiskStore>(new DiskStore(std::move(state)));
}

DiskStore::DiskStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
DiskStore::~DiskStore() = default;

std::uint32_t DiskStore::num_places() const {
  return state_->places.num_places();
}

std::uint64_t DiskStore::block_bytes() const {
  return state_->block_bytes;
}

void DiskStore::submit(TierJob job) {
  QUIRE_CHECK(job.place < num_places() && job.bytes > 0 && job.bytes <= state_->block_bytes, "no such place, or no such block");
  (job.verb == TierJob::Verb::load ? state_->loads : state_->stores)->submit(std::move(job));
}

std::uint32_t DiskStore::restored(std::uint32_t first, std::vector<RestoredBlock>& into) const {
  return state_->places.restored(first, into);
}

std::optional<RestoredBlock> DiskStore::held_from(std::uint32_t first) const {
  return state_->places.held_from(first);
}

DiskStoreStats DiskStore::stats() const {
  return state_->places.stats();
}

}  // namespace quire
