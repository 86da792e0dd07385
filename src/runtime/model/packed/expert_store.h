#pragma once
// The experts of an MoE model that is larger than its memory limit. The most used experts stay in memory. The others are read from a file
// of packed matrices when a pass needs them.
//
// The choice of resident experts does not change results. LRU eviction would fail here: every pass uses every layer, so the least recently
// used experts are the next ones to be needed. Therefore the experts with the fewest uses are evicted; the numbers of uses are halved at
// intervals.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quire/base/error.h"
#include "quire/base/model_info.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/packed/packed_file.h"

namespace quire {

// Destinations of an expert's matrices, and their numbers in the file. Null: the expert does not have this matrix.
struct StoredExpert {
  static constexpr std::size_t kParts = 3;  // gate, up and down
  std::array<PackedMatrix*, kParts> parts{};
  std::array<std::uint32_t, kParts> numbers{};
};

// Packs a matrix of the file again, from the original model.
using RepackFn = std::function<Result<void>(std::uint32_t number, PackedMatrix& matrix)>;

// Used by the thread that leads the pass; counts() may be called on any thread.
class ExpertStore {
 public:
  // `experts` is indexed by layer; an empty entry is a layer without experts. All experts together use at most `bytes` of memory, or the
  // size of the largest expert if `bytes` is less. The matrices must outlive the store, and only the store may change them.
  ExpertStore(PackedFile file, const std::vector<std::vector<StoredExpert>>& experts, std::uint64_t bytes, RepackFn repack);

  // Loads `wanted` experts of a layer in order until the memory is full, and returns how many were loaded. Each expert may occur once in
  // `wanted`. The loaded experts stay in memory until the next call. The program ends if an expert can be read neither from the file nor
  // from the model.
  std::size_t hold(std::uint32_t layer, std::span<const std::uint32_t> wanted, ThreadPool& pool);

  [[nodiscard]] std::uint64_t resident_bytes() const { return resident_bytes_; }
  [[nodiscard]] bool is_resident(std::uint32_t layer, std::uint32_t expert) const { return experts_[layer][expert].is_resident; }
  [[nodiscard]] ExpertReads counts() const;

 private:
  struct Expert {
    StoredExpert stored;
    std::uint64_t bytes = 0;
    std::size_t number = 0;
    std::uint32_t uses = 0;
    bool is_resident = false;
    bool is_held = false;
  };

  void age();
  void evict(std::uint64_t room);
  void drop(Expert& expert);
  void take_buffers(Expert& expert);
  void read(const std::vector<Expert*>& missing, ThreadPool& pool);
  void read(PackedMatrix& matrix, std::uint32_t number);

  PackedFile file_;
  std::vector<std::vector<Expert>> experts_;  // [layer][expert]
  std::uint64_t max_bytes_;
  RepackFn repack_;
  std::uint64_t resident_bytes_ = 0;
  std::uint64_t num_calls_ = 0;
  std::vector<Expert*> resident_, held_, missing_;
  std::vector<AlignedVector<std::uint8_t>> spare_;  // buffers of evicted experts, for reuse
  std::atomic<std::uint64_t> num_used_{0}, num_read_{0}, bytes_read_{0}, num_damaged_{0};
};

}  // namespace quire
