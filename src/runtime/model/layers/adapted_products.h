#pragma once
// What adapters add to products of a pass: y += b (a x), for the rows that run with one. Rows of one adapter are taken together, wherever
// they lie among the others; those without cost nothing.
//
// Two steps, so that neither needs a phase of its own (pass.h): a x goes with the products themselves, and b is added by whoever works on
// the outputs next. Made anew for each product, on the thread that leads the pass; it allocates nothing.
#include <cstdint>
#include <span>

#include "runtime/kernel/matmul.h"

namespace quire {

struct AdapterPart;
struct LowRank;
struct Pass;
struct Product;

class AdaptedProducts {
 public:
  // Rows [first, first + count) of the pass; inputs and outputs of the products begin with row `first`. All must outlive this.
  AdaptedProducts(const Pass& pass, std::span<const Product> products, std::uint32_t first, std::uint32_t count);

  // a x, in units that threads may share: some rows of one adapter and one product each.
  [[nodiscard]] std::uint32_t num_units() const { return num_units_; }
  void project(const Activations& x, std::uint32_t begin, std::uint32_t end) const;

  // Adds b (a x) to rows [row_begin, row_end), counted from `first`: to panels of one product's outputs, or to all outputs of all.
  void add(std::uint32_t product, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t panel_begin, std::uint32_t panel_end) const;
  void add(std::uint32_t row_begin, std::uint32_t row_end) const;

 private:
  struct Rows {
    std::uint32_t begin, count;  // of AdaptedRows::rows
  };
  [[nodiscard]] Rows rows_of(const AdapterPart& part, std::uint32_t row_begin, std::uint32_t row_end) const;
  // Null: nothing is added.
  [[nodiscard]] const LowRank* of(const AdapterPart& part, std::uint32_t product) const;
  [[nodiscard]] float* inner(std::uint32_t at, std::uint32_t product) const;
  void project_unit(const Activations& x, const LowRank& pair, std::uint32_t product, Rows rows) const;

  const Pass& pass_;
  std::span<const Product> products_;
  std::uint32_t first_, count_;
  std::uint32_t num_units_ = 0;
};

}  // namespace quire
