#include "runtime/model/layers/lora_experts.h"

#include <algorithm>

#include "runtime/model/layers/pass.h"

namespace quire {

LoraExperts::LoraExperts(const Pass& pass, std::uint32_t first_row) : pass_(pass), first_row_(first_row) {
  any_ = std::ranges::any_of(pass.workspace.adapted.parts,
                             [&](const AdapterPart& part) { return !part.adapter->layers[pass.layer].experts.empty(); });
}

void LoraExperts::project(const ExpertPart& part, LoraPair ExpertAdapter::* product, std::uint32_t place, const float* x,
                          std::size_t stride, std::uint32_t begin, std::uint32_t end) const {
  for (std::uint32_t row = begin; any_ && row < end; ++row) {
    const LoraPair* pair = of(part, row, product);
    if (pair == nullptr) continue;
    const RowProduct made{.x = x, .x_stride = stride, .y = inner(part, row, place), .rows = &row, .count = 1};
    pass_.kernels.multiply_rows(pair->a, made, 0, pair->a.num_panels());
  }
}

void LoraExperts::add(const ExpertPart& part, LoraPair ExpertAdapter::* product, std::uint32_t place, float* y, std::size_t stride,
                      std::uint32_t panel_begin, std::uint32_t panel_end) const {
  for (std::uint32_t row = 0; any_ && row < part.count; ++row) {
    const LoraPair* pair = of(part, row, product);
    if (pair == nullptr) continue;
    const RowProduct added{.x = inner(part, row, place),
                           .y = y,
                           .y_stride = stride,
                           .rows = &row,
                           .count = 1,
                           .scattered = RowProduct::Side::outputs,
                           .adds = true};
    pass_.kernels.multiply_rows(pair->b, added, panel_begin, panel_end);
  }
}

const LoraPair* LoraExperts::of(const ExpertPart& part, std::uint32_t row, LoraPair ExpertAdapter::* product) const {
  const Adapter* adapter = pass_.workspace.adapted.of(first_row_ + pass_.workspace.experts.rows[part.first + row]);
  if (adapter == nullptr) return nullptr;
  const std::vector<ExpertAdapter>& experts = adapter->layers[pass_.layer].experts;
  if (experts.empty()) return nullptr;
  const LoraPair& pair = experts[part.expert].*product;
  return pair.any() ? &pair : nullptr;
}

float* LoraExperts::inner(const ExpertPart& part, std::uint32_t row, std::uint32_t place) const {
  const std::size_t rank = pass_.workspace.adapted.max_rank;
  return pass_.workspace.experts.adapted + (2 * (std::size_t{part.first} + row) + place) * rank;
}

}  // namespace quire
