// Manages experts that are read when a pass needs them. Called between the phases of a pass, by the thread that leads the pass; the pass
// waits for the reads, which the pool's threads share. While the experts of one call are computed, the system reads ahead the experts that
// did not fit.
#include "runtime/model/packed/expert_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::uint32_t kUseWeight = 16;       // weight of one use; above 1, so that it can be halved
constexpr std::uint64_t kAgingInterval = 128;  // passes

}  // namespace

ExpertStore::ExpertStore(PackedFile file, const std::vector<std::vector<StoredExpert>>& experts, std::uint64_t bytes, RepackFn repack)
    : file_(std::move(file)), max_bytes_(bytes), repack_(std::move(repack)) {
  std::size_t count = 0;
  for (const std::vector<StoredExpert>& layer : experts) {
    std::vector<Expert>& kept = experts_.emplace_back();
    for (const StoredExpert& stored : layer) {
      Expert& expert = kept.emplace_back(Expert{.stored = stored, .number = count});
      for (std::size_t part = 0; part < StoredExpert::kParts; ++part)
        if (stored.parts[part] != nullptr) expert.bytes += file_.entry(stored.numbers[part]).bytes;
      max_bytes_ = std::max(max_bytes_, expert.bytes);
      ++count;
    }
  }
  resident_.reserve(count);
  held_.reserve(count);
  missing_.reserve(count);
  spare_.reserve(count * StoredExpert::kParts);
}

ExpertReads ExpertStore::counts() const {
  return {.num_used = num_used_, .num_read = num_read_, .bytes_read = bytes_read_, .num_damaged = num_damaged_};
}

std::size_t ExpertStore::hold(std::uint32_t layer, std::span<const std::uint32_t> wanted, ThreadPool& pool) {
  age();
  for (Expert* expert : held_) expert->is_held = false;
  held_.clear();
  missing_.clear();
  std::uint64_t bytes = 0, room = 0;
  std::size_t count = 0;
  for (; count < wanted.size(); ++count) {
    Expert& expert = experts_[layer][wanted[count]];
    if (bytes + expert.bytes > max_bytes_) break;
    bytes += expert.bytes;
    expert.uses += kUseWeight;
    expert.is_held = true;
    held_.push_back(&expert);
    if (expert.is_resident) continue;
    missing_.push_back(&expert);
    room += expert.bytes;
  }
  num_used_ += count;
  if (!missing_.empty()) {
    evict(room);
    read(missing_, pool);
  }
  // Reads ahead only the experts that the next call can load. That call gets the remaining experts again.
  std::uint64_t ahead = 0;
  for (const std::uint32_t later : wanted.subspan(count)) {
    const Expert& expert = experts_[layer][later];
    ahead += expert.bytes;
    if (ahead > max_bytes_) break;
    if (expert.is_resident) continue;
    for (std::size_t part = 0; part < StoredExpert::kParts; ++part)
      if (expert.stored.parts[part] != nullptr) file_.fetch_ahead(expert.stored.numbers[part]);
  }
  return count;
}

void ExpertStore::age() {
  if (++num_calls_ % (kAgingInterval * experts_.size()) != 0) return;
  for (std::vector<Expert>& layer : experts_)
    for (Expert& expert : layer) expert.uses /= 2;
}

// Evicts experts until `room` more bytes fit. Held experts are not evicted.
void ExpertStore::evict(std::uint64_t room) {
  if (resident_bytes_ + room <= max_bytes_) return;
  // The sort puts held experts first and then the most used ones; experts are evicted from the end.
  std::ranges::sort(resident_, [](const Expert* a, const Expert* b) {
    return a->is_held != b->is_held ? a->is_held : a->uses != b->uses ? a->uses > b->uses : a->number < b->number;
  });
  while (resident_bytes_ + room > max_bytes_) {
    QUIRE_CHECK(!resident_.empty() && !resident_.back()->is_held, "the held experts fit into the memory limit");
    drop(*resident_.back());
    resident_.pop_back();
  }
}

void ExpertStore::drop(Expert& expert) {
  for (PackedMatrix* part : expert.stored.parts)
    if (part != nullptr) spare_.push_back(std::move(std::exchange(part->storage, {}).own()));
  expert.is_resident = false;
  resident_bytes_ -= expert.bytes;
}

void ExpertStore::take_buffers(Expert& expert) {
  for (std::size_t part = 0; part < StoredExpert::kParts; ++part) {
    if (expert.stored.parts[part] == nullptr) continue;
    const std::uint64_t bytes = file_.entry(expert.stored.numbers[part]).bytes;
    const auto fits = std::ranges::find(spare_, bytes, &AlignedVector<std::uint8_t>::size);
    if (fits == spare_.end()) continue;
    expert.stored.parts[part]->storage.own() = std::move(*fits);
    std::swap(*fits, spare_.back());
    spare_.pop_back();
  }
}

void ExpertStore::read(const std::vector<Expert*>& missing, ThreadPool& pool) {
  for (Expert* expert : missing) take_buffers(*expert);
  spare_.clear();
  constexpr std::size_t kParts = StoredExpert::kParts;
  pool.parallel_for(static_cast<std::uint32_t>(missing.size() * kParts), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t i = begin; i < end; ++i) {
      const StoredExpert& stored = missing[i / kParts]->stored;
      if (stored.parts[i % kParts] != nullptr) read(*stored.parts[i % kParts], stored.numbers[i % kParts]);
    }
  });
  for (Expert* expert : missing) {
    expert->is_resident = true;
    resident_.push_back(expert);
    resident_bytes_ += expert->bytes;
    bytes_read_ += expert->bytes;
  }
  num_read_ += missing.size();
}

void ExpertStore::read(PackedMatrix& matrix, std::uint32_t number) {
  if (file_.read(number, matrix)) return;
  ++num_damaged_;
  const Result<void> packed = repack_(number, matrix);
  QUIRE_CHECK(packed.has_value(), "experts can be read from the file of packed weights or from the model");
}

}  // namespace quire
