// Computes the products of adapters within a pass. Created on the thread that leads the pass, before each product; all threads of the pool
// share its units. A row's result does not depend on other rows, and no memory is allocated.
#include "runtime/model/layers/lora_products.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/model/layers/pass.h"
#include "runtime/model/weights/adapter.h"

namespace quire {
namespace {

constexpr std::uint32_t kUnitRows = 32;

std::uint32_t num_units_of(std::uint32_t rows) {
  return (rows + kUnitRows - 1) / kUnitRows;
}

}  // namespace

LoraProducts::LoraProducts(const Pass& pass, std::span<const Product> products, std::uint32_t first, std::uint32_t count)
    : pass_(pass), products_(products), first_(first), count_(count) {
  QUIRE_CHECK(products.size() <= kNumLoraProducts);
  for (const AdapterPart& part : pass.workspace.adapted.parts)
    for (std::uint32_t p = 0; p < products_.size(); ++p)
      if (of(part, p) != nullptr) num_units_ += num_units_of(rows_of(part, 0, count_).count);
}

void LoraProducts::project(const Activations& x, std::uint32_t begin, std::uint32_t end) const {
  std::uint32_t first_unit = 0;
  for (const AdapterPart& part : pass_.workspace.adapted.parts) {
    const Rows rows = rows_of(part, 0, count_);
    for (std::uint32_t p = 0; p < products_.size(); ++p) {
      const LoraPair* pair = of(part, p);
      if (pair == nullptr) continue;
      const std::uint32_t last_unit = first_unit + num_units_of(rows.count);
      for (std::uint32_t unit = std::max(begin, first_unit); unit < std::min(end, last_unit); ++unit) {
        const std::uint32_t done = (unit - first_unit) * kUnitRows;
        project_unit(x, *pair, p, {rows.begin + done, std::min(kUnitRows, rows.count - done)});
      }
      first_unit = last_unit;
    }
  }
}

void LoraProducts::project_unit(const Activations& x, const LoraPair& pair, std::uint32_t product, Rows rows) const {
  const LoraRows& adapted = pass_.workspace.adapted;
  const RowProduct made{.x = x.x,
                        .x_stride = x.stride,
                        .y = inner(rows.begin, product),
                        .y_stride = adapted.stride(),
                        .rows = adapted.rows + rows.begin,
                        .first_row = first_,
                        .count = rows.count,
                        .scattered = RowProduct::Side::inputs};
  pass_.kernels.multiply_rows(pair.a, made, 0, pair.a.num_panels());
}

void LoraProducts::add(std::uint32_t product, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t panel_begin,
                       std::uint32_t panel_end) const {
  const LoraRows& adapted = pass_.workspace.adapted;
  for (const AdapterPart& part : adapted.parts) {
    const LoraPair* pair = of(part, product);
    const Rows rows = rows_of(part, row_begin, row_end);
    if (pair == nullptr || rows.count == 0) continue;
    const RowProduct added{.x = inner(rows.begin, product),
                           .x_stride = adapted.stride(),
                           .y = products_[product].y,
                           .y_stride = products_[product].y_stride,
                           .rows = adapted.rows + rows.begin,
                           .first_row = first_,
                           .count = rows.count,
                           .scattered = RowProduct::Side::outputs,
                           .adds = true};
    pass_.kernels.multiply_rows(pair->b, added, panel_begin, panel_end);
  }
}

void LoraProducts::add(std::uint32_t row_begin, std::uint32_t row_end) const {
  if (num_units_ == 0) return;
  for (std::uint32_t p = 0; p < products_.size(); ++p) add(p, row_begin, row_end, 0, products_[p].matrix->num_panels());
}

LoraProducts::Rows LoraProducts::rows_of(const AdapterPart& part, std::uint32_t row_begin, std::uint32_t row_end) const {
  const std::span<const std::uint32_t> rows(pass_.workspace.adapted.rows + part.first, part.count);
  const auto from = std::ranges::lower_bound(rows, first_ + row_begin);
  const auto to = std::ranges::lower_bound(from, rows.end(), first_ + row_end);
  return {part.first + static_cast<std::uint32_t>(from - rows.begin()), static_cast<std::uint32_t>(to - from)};
}

const LoraPair* LoraProducts::of(const AdapterPart& part, std::uint32_t product) const {
  const auto adapted = products_[product].adapted;
  if (adapted == nullptr) return nullptr;
  const LoraPair& pair = part.adapter->layers[pass_.layer].*adapted;
  return pair.any() ? &pair : nullptr;
}

float* LoraProducts::inner(std::uint32_t at, std::uint32_t product) const {
  const LoraRows& adapted = pass_.workspace.adapted;
  return adapted.inner + at * adapted.stride() + std::size_t{product} * adapted.max_rank;
}

}  // namespace quire
