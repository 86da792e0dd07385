#pragma once
// A short list of public models that quire supports, for users without a choice.
#include <cstdint>
#include <string_view>
#include <vector>

namespace quire {

struct RecommendedModel {
  std::string_view title;  // for people
  std::string_view name;   // MODEL argument
  std::uint64_t file_bytes;
  bool calls_tools;

  // Returns about how much memory `quire serve` needs with its default KV cache. Packed weights are a little larger than the file.
  [[nodiscard]] std::uint64_t memory_bytes() const;
};

// Returns the models that need at most four fifths of the memory, the largest `max_models` of them, the largest first.
[[nodiscard]] std::vector<RecommendedModel> models_that_fit(std::uint64_t memory_bytes, std::size_t max_models);

}  // namespace quire
