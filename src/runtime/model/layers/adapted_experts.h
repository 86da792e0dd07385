#pragma once
// What adapters add to the products of experts: y += b (a x), for each pair of a row and an expert that it goes through, where the row's
// adapter changes that expert. A row's sums depend on it alone, as those of AdaptedProducts. a x goes in a phase of its own before the
// product, b is added by whoever works on the outputs. Made anew for each tile of rows; it allocates nothing.
#include <cstdint>

#include "runtime/model/layers/workspace.h"
#include "runtime/model/weights/adapter.h"

namespace quire {

struct Pass;

class AdaptedExperts {
 public:
  // Rows of the workspace's pairs count from row `first_row` of the pass.
  AdaptedExperts(const Pass& pass, std::uint32_t first_row);

  // Some row's adapter changes experts of the layer under way.
  [[nodiscard]] bool any() const { return any_; }
  // Of rows [begin, end) of an expert's; row i's input is x + i * stride. Two products may be between their halves at once: `place` is 0
  // or 1.
  void project(const ExpertPart& part, LowRank ExpertAdapter::* product, std::uint32_t place, const float* x, std::size_t stride,
               std::uint32_t begin, std::uint32_t end) const;
  // To panels of the outputs of all its rows; row i's are y + i * stride.
  void add(const ExpertPart& part, LowRank ExpertAdapter::* product, std::uint32_t place, float* y, std::size_t stride,
           std::uint32_t panel_begin, std::uint32_t panel_end) const;

 private:
  // Null: nothing is added to the pair.
  [[nodiscard]] const LowRank* of(const ExpertPart& part, std::uint32_t row, LowRank ExpertAdapter::* product) const;
  [[nodiscard]] float* inner(const ExpertPart& part, std::uint32_t row, std::uint32_t place) const;

  const Pass& pass_;
  std::uint32_t first_row_;
  bool any_ = false;
};

}  // namespace quire
