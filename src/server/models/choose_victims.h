#pragma once
// Decides which models must be unloaded before another one can be loaded.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace quire {

// A model whose process exists or was chosen to start.
struct ResidentModel {
  std::uint64_t bytes = 0;
  bool must_stay = false;      // it loads, or will load next
  bool is_busy = false;        // it has running requests
  std::uint64_t last_use = 0;  // larger: later
};

struct MemoryLimits {
  std::uint64_t bytes = 0;       // 0: no limit
  std::uint32_t max_models = 0;  // 0: no limit
};

// Returns whether one more model of `needed_bytes` fits in addition to the residents.
[[nodiscard]] bool fits(std::span<const ResidentModel> residents, std::uint64_t needed_bytes, const MemoryLimits& limits);

// Returns the indices of the residents to unload so that a model of `needed_bytes` fits: idle ones first, then busy ones, each time the
// least recently used one. A busy victim must first end its requests. Returns nullopt if the model does not fit even then.
[[nodiscard]] std::optional<std::vector<std::size_t>> choose_victims(std::span<const ResidentModel> residents, std::uint64_t needed_bytes,
                                                                     const MemoryLimits& limits);

}  // namespace quire
