#pragma once
// The LoRA terms of the products of experts: y += b (a x), for each pair of a row and an expert that the row's adapter changes. A row's
// sums depend only on the row, as in LoraProducts. a x is computed in a separate phase before the product; the threads that compute the
// outputs add b (a x). Created for each tile of rows; allocates no memory.
#include <cstdint>

#include "runtime/model/layers/workspace.h"
#include "runtime/model/weights/adapter.h"

namespace quire {

struct Pass;

class LoraExperts {
 public:
  // `first_row`: the row of the pass that is row 0 in the workspace's pairs.
  LoraExperts(const Pass& pass, std::uint32_t first_row);

  // Returns whether the adapter of any row changes experts of the current layer.
  [[nodiscard]] bool any() const { return any_; }
  // Computes a x for rows [begin, end) of an expert; the input of row i is at x + i * stride. `place` (0 or 1) selects the buffer, because
  // two products can be between project() and add() at the same time.
  void project(const ExpertPart& part, LoraPair ExpertAdapter::* product, std::uint32_t place, const float* x, std::size_t stride,
               std::uint32_t begin, std::uint32_t end) const;
  // Adds b (a x) to panels of the outputs of all rows of the expert; the outputs of row i are at y + i * stride.
  void add(const ExpertPart& part, LoraPair ExpertAdapter::* product, std::uint32_t place, float* y, std::size_t stride,
           std::uint32_t panel_begin, std::uint32_t panel_end) const;

 private:
  // Returns the adapter's matrices for a row and a product; null if the adapter does not change the product.
  [[nodiscard]] const LoraPair* of(const ExpertPart& part, std::uint32_t row, LoraPair ExpertAdapter::* product) const;
  [[nodiscard]] float* inner(const ExpertPart& part, std::uint32_t row, std::uint32_t place) const;

  const Pass& pass_;
  std::uint32_t first_row_;
  bool any_ = false;
};

}  // namespace quire
