#include "runtime/tier/disk_store.h"

#include <fmt/format.h>

#include "base/check.h"
#include "runtime/tier/disk_io_worker.h"
#include "runtime/tier/disk_slots.h"
#include "runtime/tier/tier_opening.h"

namespace quire {

namespace {

constexpr std::uint32_t kMaxDepth = 256;

}  // namespace

// Each direction has a queue and a thread. The members are destroyed in reverse order: the workers first finish the blocks in flight, then
// `places` and `files` are destroyed.
struct DiskStore::State {
  State(std::unique_ptr<TierFiles> opened, const OpenedTier& tier, std::uint64_t bytes)
      : files(std::move(opened)), places(*files, tier), block_bytes(bytes) {}

  const std::unique_ptr<TierFiles> files;
  DiskSlots places;
  const std::uint64_t block_bytes;
  std::unique_ptr<DiskIoWorker> loads, stores;
};

Result<std::unique_ptr<DiskStore>> DiskStore::open(std::unique_ptr<TierFiles> files, const DiskStoreOptions& options) {
  if (options.block_bytes == 0 || options.block_bytes > kMaxTierBlockBytes)
    return fail(ErrorCode::invalid_argument, "block_bytes",
                fmt::format("is {}, but must be 1 to {}", options.block_bytes, kMaxTierBlockBytes), "choose a smaller block_size");
  if (options.depth == 0 || options.depth > kMaxDepth)
    return fail(ErrorCode::invalid_argument, "depth", fmt::format("is {}, but must be 1 to {}", options.depth, kMaxDepth),
                "choose a depth in this range");
  const TierShape shape{options.budget_bytes, padded_to_page(options.block_bytes), options.fingerprint};
  const Result<OpenedTier> tier = open_tier(*files, shape);
  if (!tier) return std::unexpected(tier.error());
  auto state = std::make_unique<State>(std::move(files), *tier, options.block_bytes);
  for (const TierJob::Verb verb : {TierJob::Verb::load, TierJob::Verb::store}) {
    std::unique_ptr<BlockQueue> queue = state->files->open_queue(DiskIoWorker::kBuffersPerDepth * options.depth);
    if (queue == nullptr)
      return fail(ErrorCode::unsupported, "io", "this build of quire or this kernel does not support io_uring", "use automatic or threads");
    std::unique_ptr<DiskIoWorker>& worker = verb == TierJob::Verb::load ? state->loads : state->stores;
    worker = DiskIoWorker::start(state->places, std::move(queue),
                                 {.verb = verb,
                                  .depth = options.depth,
                                  .place_bytes = tier->header.place_bytes,
                                  .bytes_per_second = options.bytes_per_second,
                                  .yields_cores = options.yields_cores && verb == TierJob::Verb::store});
    if (worker == nullptr)
      return fail(ErrorCode::too_large, "depth",
                  fmt::format("cannot allocate memory for {} blocks of {} bytes", DiskIoWorker::kBuffersPerDepth * options.depth,
                              shape.place_bytes),
                  "use a smaller depth");
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
  QUIRE_CHECK(job.place < num_places() && job.bytes > 0 && job.bytes <= state_->block_bytes,
              "a job has an existing slot and at most one block of data");
  (job.verb == TierJob::Verb::load ? state_->loads : state_->stores)->submit(std::move(job));
}

std::uint32_t DiskStore::restored(std::uint32_t first, std::vector<RestoredBlock>& into) const {
  return state_->places.restored(first, into);
}

std::optional<RestoredBlock> DiskStore::next_held_block(std::uint32_t first) const {
  return state_->places.next_held_block(first);
}

DiskStoreStats DiskStore::stats() const {
  return state_->places.stats();
}

}  // namespace quire
