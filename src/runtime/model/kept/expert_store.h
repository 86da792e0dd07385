#pragma once
// The experts of a mixture that is larger than its memory: those that are used most stay, the others are read from a file of packed
// matrices when a pass wants them.
//
// Which ones are there changes no result. Every layer is gone through in every pass, so those used least recently would be the very ones
// that are wanted next: what counts is how often an expert was used, and that halves as time goes by.
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
#include "runtime/model/kept/packed_file.h"

namespace quire {

// Where an expert's matrices go, and their numbers in the file. Null: it has none of that kind.
struct StoredExpert {
  static constexpr std::size_t kParts = 3;  // gate, up and down
  std::array<PackedMatrix*, kParts> parts{};
  std::array<std::uint32_t, kParts> numbers{};
};

// Packs a matrix of the file's once more, from the model that it was packed from.
using PackAgain = std::function<Result<void>(std::uint32_t number, PackedMatrix& matrix)>;

// Used by one thread, that of the pass; counts() by any.
class ExpertStore {
 public:
  // `experts`: by layer (none: the layer has no experts). All of them together take `bytes` of memory at most, or as much as the largest
  // one takes. The matrices outlive the store, and nobody else changes them.
  ExpertStore(PackedFile file, const std::vector<std::vector<StoredExpert>>& experts, std::uint64_t bytes, PackAgain pack_again);

  // Brings `wanted` experts of a layer, each named once, from the first on: as many as fit. They stay until the next call. Stops the
  // program if neither the file nor the model gives one of them.
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
  PackAgain pack_again_;
  std::uint64_t resident_bytes_ = 0;
  std::uint64_t num_calls_ = 0;
  std::vector<Expert*> resident_, held_, missing_;
  std::vector<AlignedVector<std::uint8_t>> spare_;  // of experts that have gone, for those that come
  std::atomic<std::uint64_t> num_used_{0}, num_read_{0}, bytes_read_{0}, num_damaged_{0};
};

}  // namespace quire
