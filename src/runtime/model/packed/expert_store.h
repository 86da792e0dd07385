#pragma once
// The experts of an MoE model that is larger than its memory. The most used experts stay in memory; the others are read from a file of
// packed matrices when a pass needs them.
//
// The choice of resident experts changes no result. Every pass runs through every layer, so the least recently used experts would be
// exactly the ones that are needed next. The number of uses decides instead, and it is halved from time to time.
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

// Destinations of an expert's matrices, and their numbers in the file. Null: the expert has no matrix of that kind.
struct StoredExpert {
  static constexpr std::size_t kParts = 3;  // gate, up and down
  std::array<PackedMatrix*, kParts> parts{};
  std::array<std::uint32_t, kParts> numbers{};
};

// Packs a matrix of the file again, from the model that it was packed from.
using RepackFn = std::function<Result<void>(std::uint32_t number, PackedMatrix& matrix)>;

// Used by one thread, which leads the pass; counts() may be called on any thread.
class ExpertStore {
 public:
  // `experts` is indexed by layer; an empty entry is a layer without experts. All experts together take at most `bytes` of memory, or the
  // size of the largest expert if that is more. The matrices must outlive the store, and only the store may change them.
  ExpertStore(PackedFile file, const std::vector<std::vector<StoredExpert>>& experts, std::uint64_t bytes, RepackFn repack);

  // Loads `wanted` experts of a layer from the first on, and returns how many fit. Each expert must occur once in `wanted`. The loaded
  // experts stay until the next call. Aborts if neither the file nor the model provides an expert.
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
