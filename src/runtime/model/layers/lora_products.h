#pragma once
// The LoRA terms of the products of a pass: y += b (a x), for rows with an adapter. Rows with the same adapter are computed together,
// wherever they are in the pass; rows without an adapter cost no time.
//
// Two steps avoid a separate phase (pass.h): a x is computed with the products, and the threads that use the outputs next add b (a x).
// Created for each product, on the thread that leads the pass; allocates no memory.
#include <cstdint>
#include <span>

#include "runtime/kernel/matmul.h"

namespace quire {

struct AdapterPart;
struct LoraPair;
struct Pass;
struct Product;

class LoraProducts {
 public:
  // Covers rows [first, first + count) of the pass; inputs and outputs of the products begin with row `first`. The arguments must outlive
  // this object.
  LoraProducts(const Pass& pass, std::span<const Product> products, std::uint32_t first, std::uint32_t count);

  // project() computes a x, in units that threads may share. A unit is some rows of one adapter and one product.
  [[nodiscard]] std::uint32_t num_units() const { return num_units_; }
  void project(const Activations& x, std::uint32_t begin, std::uint32_t end) const;

  // Add b (a x) to rows [row_begin, row_end), counted from `first`: to some panels of one product's outputs, or to all outputs of all
  // products.
  void add(std::uint32_t product, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t panel_begin, std::uint32_t panel_end) const;
  void add(std::uint32_t row_begin, std::uint32_t row_end) const;

 private:
  struct Rows {
    std::uint32_t begin, count;  // range of LoraRows::rows
  };
  [[nodiscard]] Rows rows_of(const AdapterPart& part, std::uint32_t row_begin, std::uint32_t row_end) const;
  // Returns the adapter's matrices for a product; null if the adapter does not change the product.
  [[nodiscard]] const LoraPair* of(const AdapterPart& part, std::uint32_t product) const;
  [[nodiscard]] float* inner(std::uint32_t at, std::uint32_t product) const;
  void project_unit(const Activations& x, const LoraPair& pair, std::uint32_t product, Rows rows) const;

  const Pass& pass_;
  std::span<const Product> products_;
  std::uint32_t first_, count_;
  std::uint32_t num_units_ = 0;
};

}  // namespace quire
