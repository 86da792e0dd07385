#pragma once
// A KV cache of two groups. The content of a block follows from a number.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "quire/transport.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {

// Blocks of the first group have pages in both tensors. Blocks of the second group have a page in the first tensor only.
inline KvLayout two_groups() {
  KvLayout layout{.num_blocks = 40, .dtype = KvDtype::bf16, .groups = {}, .layers = {}, .page_bytes = {6000, 3000}};
  for (const std::vector<std::uint32_t>& layers : {std::vector<std::uint32_t>{0, 1}, std::vector<std::uint32_t>{2}})
    layout.groups.push_back({.spec = {}, .block_size = 16, .kernel_block_size = 16, .layers = layers});
  return layout;
}

struct ToyCache {
  KvLayout layout = two_groups();
  std::vector<std::vector<std::byte>> tensors;
  ToyCache() {
    for (const std::uint64_t page : layout.page_bytes) tensors.emplace_back(page * layout.num_blocks);
  }
  KvPages pages() {
    KvPages all{.layout = &layout, .tensors = {}};
    for (std::vector<std::byte>& tensor : tensors) all.tensors.push_back(tensor.data());
    return all;
  }
  void fill(BlockId block, std::uint64_t number) {
    for (std::uint32_t tensor = 0; tensor < 2; ++tensor)
      std::ranges::copy(tier_block(number * 2 + tensor, layout.page_bytes[tensor]), pages().page(tensor, block).begin());
  }
  bool holds(BlockId block, std::uint64_t number, std::uint32_t group) {
    bool is_equal = true;
    for (std::uint32_t tensor = 0; tensor < layout.groups[group].layers.size(); ++tensor)
      is_equal = is_equal && std::ranges::equal(pages().page(tensor, block), tier_block(number * 2 + tensor, layout.page_bytes[tensor]));
    return is_equal;
  }
};

}  // namespace quire::test
