#pragma once
// A paged cache, queries against it, and the expected attention outputs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "runtime/kernel/attention.h"
#include "runtime/kernel/kernel_fixtures.h"

namespace quire::kernel_test {

// The element type of a cache's rows, and whether attention items multiply them in pairs.
struct Kind {
  KvDtype dtype = KvDtype::bf16;
  bool in_pairs = false;
};

inline constexpr Kind kKinds[] = {{KvDtype::bf16, false}, {KvDtype::f32, false}, {KvDtype::int8, false}, {KvDtype::bf16, true}};

inline Kind any_kind(Rng& rng) {
  return kKinds[random_below(rng, std::size(kKinds))];
}

// The cache of one request with a shuffled block table. Other blocks, and tokens past the request's end, contain NaN.
struct Cache {
  Cache(Rng& rng, Kind kind, std::uint32_t block_size, std::uint32_t kv_heads, std::uint32_t head_dim, std::uint32_t length)
      : tokens(length), row(std::size_t{kv_heads} * head_dim), in_pairs(kind.in_pairs) {
    const KvDtype dtype = kind.dtype;
    const std::uint32_t num_blocks = (length - 1) / block_size + 1;
    layer.dtype = dtype;
    layer.block_size = block_size;
    layer.num_kv_heads = kv_heads;
    layer.head_dim = head_dim;
    layer.token_stride = row_elements(dtype, head_dim);
    layer.head_stride = std::size_t{block_size} * layer.token_stride;
    layer.block_stride = layer.head_stride * kv_heads + 32;  // room for other layers
    const std::size_t elements = layer.block_stride * (num_blocks + 3);
    const std::size_t bytes = elements * element_bytes(dtype);
    for (auto* storage : {&keys, &values}) storage->assign(bytes, std::byte{0xFF});
    layer.keys = keys.data();
    layer.values = values.data();
    blocks.resize(num_blocks);
    for (std::uint32_t i = 0; i < num_blocks; ++i) blocks[i] = BlockId{i + 2};
    std::shuffle(blocks.begin(), blocks.end(), rng);
    k = random_floats(rng, tokens * row);
    v = random_floats(rng, tokens * row);
    std::vector<std::int64_t> slots(tokens);
    for (std::uint32_t t = 0; t < tokens; ++t) slots[t] = std::int64_t{blocks[t / block_size].value} * block_size + t % block_size;
    select_kernels(KernelIsa::best).write_kv(layer, k.data(), v.data(), row, slots);
    if (dtype == KvDtype::bf16) {
      for (auto* values_of : {&k, &v})
        for (float& value : *values_of) value = bf16_to_float(float_to_bf16(value));
    }
    if (dtype == KvDtype::int8) {
      read_codes(keys, k);
      read_codes(values, v);
    }
  }

  void read_codes(const AlignedVector<std::byte>& cache, std::vector<float>& out) const {
    auto to = out.begin();
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (std::uint32_t head = 0; head < layer.num_kv_heads; ++head) {
        const std::byte* const at = cache.data() + blocks[t / layer.block_size].value * layer.block_stride + head * layer.head_stride +
                                    t % layer.block_size * layer.token_stride;
        float scale = 0.0F;
        std::memcpy(&scale, at + layer.head_dim, sizeof scale);
        for (std::uint32_t d = 0; d < layer.head_dim; ++d) *to++ = static_cast<float>(static_cast<std::int8_t>(at[d])) * scale;
      }
    }
  }

  // The allowed difference of an output from double precision; values and queries are of magnitude 1.
  [[nodiscard]] double tolerance() const { return in_pairs ? 1e-2 : 5e-6; }

  std::uint32_t tokens;
  std::size_t row;
  bool in_pairs;
  PagedKvLayer layer;
  AlignedVector<std::byte> keys, values;
  std::vector<BlockId> blocks;
  std::vector<float> k, v;  // contents of the cache, [token][kv_head][head_dim]
};

struct Queries {
  std::uint32_t group;
  std::uint32_t first_position;
  std::uint32_t rows;
  std::vector<float> q;  // [row][heads][head_dim]
  std::uint32_t window = 0;
  float soft_cap = 0.0F;
  std::vector<float> sinks = {};  // [head]; empty without sinks
  bool in_pairs = false;
};

// Returns outputs [row][heads][head_dim], computed in items of at most `rows_per_item` rows.
inline std::vector<float> attend(const Kernels& kernels, const Cache& cache, const Queries& queries, std::uint32_t rows_per_item) {
  const std::size_t stride = cache.row * queries.group;
  std::vector<float> out(queries.rows * stride, 777.0F);
  AlignedVector<std::byte> scratch(attention_scratch_bytes(cache.layer.head_dim, queries.group));
  for (std::uint32_t head = 0; head < cache.layer.num_kv_heads; ++head) {
    for (std::uint32_t row = 0; row < queries.rows; row += rows_per_item) {
      AttentionItem item;
      item.q = queries.q.data() + row * stride;
      item.out = out.data() + row * stride;
      item.q_stride = item.out_stride = stride;
      item.rows = std::min(rows_per_item, queries.rows - row);
      item.first_position = queries.first_position + row;
      item.kv_head = head;
      item.group = queries.group;
      item.blocks = cache.blocks.data();
      item.scale = 0.125F;
      item.window = queries.window;
      item.soft_cap = queries.soft_cap;
      item.sinks = queries.sinks.empty() ? nullptr : queries.sinks.data();
      item.in_pairs = queries.in_pairs;
      kernels.attend(cache.layer, item, scratch);
    }
  }
  return out;
}

// Softmax attention in double precision for one row and query head.
inline std::vector<double> exact_row(const Cache& cache, const Queries& queries, std::uint32_t row, std::uint32_t head) {
  const std::uint32_t dim = cache.layer.head_dim;
  const float* q = queries.q.data() + row * cache.row * queries.group + std::size_t{head} * dim;
  const std::uint32_t seen = queries.first_position + row + 1;
  const std::uint32_t first = window_begin(queries.window, seen - 1);
  std::vector<double> weights(seen, 0.0);
  for (std::uint32_t t = first; t < seen; ++t) {
    const float* k = cache.k.data() + t * cache.row + std::size_t{head / queries.group} * dim;
    double dot = 0.0;
    for (std::uint32_t d = 0; d < dim; ++d) dot += static_cast<double>(q[d]) * static_cast<double>(k[d]);
    const auto cap = static_cast<double>(queries.soft_cap);
    weights[t] = std::exp(cap == 0.0 ? dot * 0.125 : cap * std::tanh(dot * 0.125 / cap));
  }
  const double sum =
      std::accumulate(weights.begin(), weights.end(), queries.sinks.empty() ? 0.0 : std::exp(static_cast<double>(queries.sinks[head])));
  std::vector<double> out(dim, 0.0);
  for (std::uint32_t t = first; t < seen; ++t) {
    const float* v = cache.v.data() + t * cache.row + std::size_t{head / queries.group} * dim;
    for (std::uint32_t d = 0; d < dim; ++d) out[d] += weights[t] / sum * static_cast<double>(v[d]);
  }
  return out;
}

inline Queries random_queries(Rng& rng, const Cache& cache, std::uint32_t group, std::uint32_t rows) {
  return {.group = group,
          .first_position = cache.tokens - rows,
          .rows = rows,
          .q = random_floats(rng, rows * cache.row * group),
          .in_pairs = cache.in_pairs};
}

}  // namespace quire::kernel_test
