#include "runtime/model/decoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

// A pass is a list of phases over all rows, with a barrier after each: products are split over panels of outputs, the rest over rows or
// attention items. The order of phases makes each layer write K and V of all rows before any row attends.

namespace quire {
namespace {

// Some of the rows of a prepared input.
Activations slice_rows(const Activations& all, std::uint32_t first, std::uint32_t count) {
  Activations part = all;
  part.rows = count;
  part.x += first * all.stride;
  if (all.mode == ActivationMode::f32) return part;
  const std::size_t columns = all.columns;
  part.codes += first * 2 * columns;
  part.scales += first * columns / kGroupColumns;
  part.half_sums += first * columns / 16;
  return part;
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, DecoderWeights weights, const Kernels& kernels, ActivationMode mode,
                 const WorkspaceLimits& limits, ThreadPool& pool)
    : config_(config),
      weights_(std::move(weights)),
      kernels_(kernels),
      mode_(mode),
      pool_(pool),
      workspace_(config, mode, limits),
      frequencies_(config.rope_frequencies()) {
  const bool is_long = !weights_.rope_long_factors.empty() && limits.positions > config.rope_original_context;
  const std::vector<float>& factors = is_long ? weights_.rope_long_factors : weights_.rope_factors;
  for (std::size_t i = 0; i < factors.size(); ++i) frequencies_[i] /= factors[i];
  for (float& weight : weights_.output_norm) weight /= config.logit_divisor;
}

void Decoder::forward(const BatchInput& input, KvCache& cache, const BlockTables& tables, std::span<float> logits) {
  check(input, cache, logits);
  rows_ = static_cast<std::uint32_t>(input.tokens.size());
  if (rows_ == 0) return;
  lay_out(input, tables);
  embed(input);
  for (std::uint32_t i = 0; i < config_.num_layers; ++i) {
    const bool is_last = i + 1 == config_.num_layers;
    const PagedKvLayer kv = kv_layer(cache, i);
    write_kv(i, kv);
    if (is_last) keep_logit_rows(input, tables);
    if (rows_ == 0) return;
    attend(weights_.layers[i], kv);
    feed_forward(weights_.layers[i], is_last ? nullptr : &weights_.layers[i + 1].attn_norm);
  }
  output(logits);
}

void Decoder::check(const BatchInput& input, const KvCache& cache, std::span<const float> logits) const {
  const WorkspaceLimits& limits = workspace_.limits();
  QUIRE_CHECK(input.tokens.size() <= limits.rows, "more rows than max_num_batched_tokens");
  QUIRE_CHECK(input.sequences.size() <= limits.sequences && input.logit_rows.size() <= limits.sequences, "more than max_num_seqs");
  QUIRE_CHECK(logits.size() == input.logit_rows.size() * config_.vocab_size, "logits of another size");
  QUIRE_CHECK(cache.layout().layers.size() == config_.num_layers, "a KV cache of another model");
  for (const KvLayerLayout& layer : cache.layout().layers)
    QUIRE_CHECK(layer.num_kv_heads == config_.num_kv_heads && layer.head_dim == config_.head_dim, "a KV cache of another model");
  std::size_t rows = 0;
  for (const BatchSequence& sequence : input.sequences) {
    rows += sequence.num_tokens;
    QUIRE_CHECK(std::uint64_t{sequence.first_position} + sequence.num_tokens <= limits.positions, "a position beyond max_model_len");
  }
  QUIRE_CHECK(rows == input.tokens.size(), "sequences and tokens differ in length");
  for (std::size_t i = 0; i < input.logit_rows.size(); ++i) {
    QUIRE_CHECK(input.logit_rows[i] < rows, "logits of no row");
    QUIRE_CHECK(i == 0 || input.logit_rows[i - 1] < input.logit_rows[i], "logit rows ascend");
  }
  for (const TokenId token : input.tokens)
    QUIRE_CHECK(std::cmp_less(token, config_.vocab_size) && token >= 0, "a token outside the vocabulary");
}

// Positions, cache places and attention items of every row: the same for all layers.
void Decoder::lay_out(const BatchInput& input, const BlockTables& tables) {
  Workspace& w = workspace_;
  w.items.clear();
  attention_work_ = 0;
  std::uint32_t row = 0;
  for (const BatchSequence& sequence : input.sequences) {
    for (std::uint32_t i = 0; i < sequence.num_tokens; ++i) {
      w.positions[row + i] = sequence.first_position + i;
      w.kv_slots[row + i] = tables.kv_slot(sequence.slot, w.positions[row + i]);
    }
    add_items(tables.row(sequence.slot).data(), row, sequence.num_tokens, row);
    row += sequence.num_tokens;
  }
  cut_long_rows();
}

// What attends for `count` rows of one sequence; their results become rows `out_row` and on.
void Decoder::add_items(const BlockId* blocks, std::uint32_t row, std::uint32_t count, std::uint32_t out_row) {
  Workspace& w = workspace_;
  for (std::uint32_t done = 0; done < count; done += kAttentionItemRows) {
    const std::uint32_t rows = std::min(kAttentionItemRows, count - done);
    attention_work_ += std::uint64_t{rows} * (w.positions[row + done] + rows) * config_.q_size();
    for (std::uint32_t head = 0; head < config_.num_kv_heads; ++head) {
      w.items.push_back({.q = w.qkv + (row + done) * qkv_size(),
                         .out = w.attention + std::size_t{out_row + done} * config_.q_size(),
                         .q_stride = qkv_size(),
                         .out_stride = config_.q_size(),
                         .rows = rows,
                         .first_position = w.positions[row + done],
                         .kv_head = head,
                         .group = config_.group(),
                         .blocks = blocks,
                         .scale = config_.attention_scale});
    }
  }
}

// A few decoding rows of long contexts are too few items for all threads: each segment becomes an item of its own.
void Decoder::cut_long_rows() {
  Workspace& w = workspace_;
  w.joins.clear();
  const std::size_t num_items = w.items.size();
  if (pool_.num_threads() == 1 || num_items >= std::size_t{kItemsPerThread} * pool_.num_threads()) return;
  float* partials = w.partials;
  for (std::size_t i = 0; i < num_items; ++i) {
    AttentionItem item = w.items[i];
    item.end_segment = item.first_position / kSegmentTokens + 1;
    if (item.rows > 1 || item.end_segment == 1) continue;
    item.partials = partials;
    partials += item.end_segment * attention_partial_floats(config_.head_dim, item.group);
    w.joins.push_back(item);
    for (; item.first_segment < w.joins.back().end_segment; ++item.first_segment) {
      item.end_segment = item.first_segment + 1;
      item.first_segment == 0 ? w.items[i] = item : w.items.emplace_back(item);
    }
  }
}

// After the last layer's keys and values are written, only the rows whose logits are wanted go on: they become the first ones.
void Decoder::keep_logit_rows(const BatchInput& input, const BlockTables& tables) {
  const std::size_t width = config_.hidden_size;
  const std::span<const std::uint32_t> wanted = input.logit_rows;
  workspace_.items.clear();
  attention_work_ = 0;
  std::uint32_t end = 0;
  std::uint32_t kept = 0;
  for (const BatchSequence& sequence : input.sequences) {
    end += sequence.num_tokens;
    while (kept < wanted.size() && wanted[kept] < end) {
      const std::uint32_t row = wanted[kept];
      std::uint32_t count = 1;
      while (kept + count < wanted.size() && wanted[kept + count] == row + count && row + count < end) ++count;
      std::copy_n(workspace_.hidden + row * width, row == kept ? 0 : count * width, workspace_.hidden + kept * width);
      add_items(tables.row(sequence.slot).data(), row, count, kept);
      kept += count;
    }
  }
  rows_ = kept;
  cut_long_rows();
}

void Decoder::embed(const BatchInput& input) {
  const std::uint32_t half = config_.rotary_dim / 2;
  const Activations x = hidden_activations();
  pool_.parallel_for(rows_, row_grain(rows_), [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t row = begin; row < end; ++row) {
      float* hidden = workspace_.hidden + std::size_t{row} * config_.hidden_size;
      unpack_row(weights_.embedding, static_cast<std::uint32_t>(input.tokens[row]), {hidden, config_.hidden_size});
      kernels_.scale(hidden, config_.embedding_scale, config_.hidden_size);
      const std::span cosines(workspace_.cosines + std::size_t{row} * half, half);
      const std::span sines(workspace_.sines + std::size_t{row} * half, half);
      rope_angles(workspace_.positions[row], frequencies_, cosines, sines);
      kernels_.scale(cosines.data(), config_.rope_attention_factor, half);
      kernels_.scale(sines.data(), config_.rope_attention_factor, half);
      norm_row(hidden, weights_.layers[0].attn_norm, workspace_.input + row * x.stride);
    }
    kernels_.prepare(x, begin, end);
  });
}

// Queries, keys and values of every row; keys and values go to the cache.
void Decoder::write_kv(std::uint32_t index, const PagedKvLayer& kv) {
  const LayerWeights& layer = weights_.layers[index];
  const std::size_t q_size = config_.q_size();
  const std::size_t kv_size = config_.kv_size();
  float* qkv = workspace_.qkv;
  multiply(std::array{Product{&layer.q.matrix, qkv, qkv_size()}, Product{&layer.k.matrix, qkv + q_size, qkv_size()},
                      Product{&layer.v.matrix, qkv + q_size + kv_size, qkv_size()}},
           hidden_activations());
  pool_.parallel_for(rows_, row_grain(rows_),
                     [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) { rotate_and_write(index, kv, begin, end); });
}

void Decoder::attend(const LayerWeights& layer, const PagedKvLayer& kv) {
  run_attention(kv);
  const Activations x = activations(workspace_.attention, rows_, config_.q_size(), workspace_.inner_codes);
  prepare(x);
  multiply(std::array{Product{&layer.attn_output.matrix, workspace_.input, config_.hidden_size}}, x);
  pool_.parallel_for(rows_, row_grain(rows_), [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    add_and_norm(layer.attn_output.bias, layer.attn_post_norm, &layer.ffn_norm, begin, end);
  });
}

void Decoder::rotate_and_write(std::uint32_t index, const PagedKvLayer& kv, std::uint32_t row_begin, std::uint32_t row_end) {
  const LayerWeights& layer = weights_.layers[index];
  const std::uint32_t q_size = config_.q_size();
  const std::uint32_t kv_size = config_.kv_size();
  const std::size_t half = config_.rotary_dim / 2;
  for (std::uint32_t row = row_begin; row < row_end; ++row) {
    float* q = workspace_.qkv + row * qkv_size();
    finish_heads(q, config_.num_heads, layer.q.bias, layer.q_norm);
    finish_heads(q + q_size, config_.num_kv_heads, layer.k.bias, layer.k_norm);
    if (!layer.v.bias.empty()) kernels_.add(q + q_size + kv_size, layer.v.bias.data(), kv_size);
    if (!config_.layer_rotates(index)) continue;
    // The heads of k follow those of q.
    kernels_.rope(config_.rope_style, q, config_.num_heads + config_.num_kv_heads, config_.head_dim, config_.rotary_dim,
                  workspace_.cosines + row * half, workspace_.sines + row * half);
  }
  const float* k = workspace_.qkv + row_begin * qkv_size() + q_size;
  kernels_.write_kv(kv, k, k + kv_size, qkv_size(), {workspace_.kv_slots + row_begin, row_end - row_begin});
}

// Bias and norm of one row of q or k; a norm is as wide as one head or as all of them.
void Decoder::finish_heads(float* x, std::uint32_t num_heads, const std::vector<float>& bias, const std::vector<float>& norm) const {
  const std::uint32_t width = num_heads * config_.head_dim;
  if (!bias.empty()) kernels_.add(x, bias.data(), width);
  const auto norm_width = static_cast<std::uint32_t>(norm.size());
  for (std::uint32_t at = 0; at < width && norm_width > 0; at += norm_width)
    kernels_.rms_norm(x + at, norm.data(), config_.norm_epsilon, x + at, norm_width);
}

void Decoder::run_attention(const PagedKvLayer& kv) {
  // Below some tens of microseconds of work a second thread does not pay.
  constexpr std::uint64_t kWorthSharing = 100'000;
  const auto num_items = static_cast<std::uint32_t>(workspace_.items.size());
  const std::uint32_t shared_grain = std::max(1U, num_items / (pool_.num_threads() * 16));
  const std::uint32_t grain = attention_work_ < kWorthSharing ? num_items : shared_grain;
  pool_.parallel_for(num_items, grain, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
    for (std::uint32_t i = begin; i < end; ++i) kernels_.attend(kv, workspace_.items[i], workspace_.attention_scratch(thread));
  });
  for (const AttentionItem& item : workspace_.joins) kernels_.join_segments(kv, item);
}

// In tiles of rows: a tile's outcome replaces its own rows of hidden and input, which no other tile reads.
void Decoder::feed_forward(const LayerWeights& layer, const std::vector<float>* next_norm) {
  const Activations all = hidden_activations();
  for (std::uint32_t first = 0; first < rows_; first += kFeedForwardRows) {
    const std::uint32_t count = std::min(kFeedForwardRows, rows_ - first);
    gate_and_up(layer, slice_rows(all, first, count));
    const Activations inner = activations(workspace_.gate, count, config_.intermediate_size, workspace_.inner_codes);
    prepare(inner);
    float* out = workspace_.input + std::size_t{first} * config_.hidden_size;
    multiply(std::array{Product{&layer.down.matrix, out, config_.hidden_size}}, inner);
    pool_.parallel_for(count, row_grain(count), [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
      add_and_norm(layer.down.bias, layer.ffn_post_norm, next_norm, first + begin, first + end);
    });
  }
}

// The same panels of both products go to one thread, which can then join them.
void Decoder::gate_and_up(const LayerWeights& layer, const Activations& x) {
  const std::size_t width = config_.intermediate_size;
  const std::array products{Product{&layer.gate.matrix, workspace_.gate, width}, Product{&layer.up.matrix, workspace_.up, width}};
  const std::uint32_t panels = layer.gate.matrix.num_panels();
  const std::size_t panel_bytes = layer.gate.matrix.panel_bytes + layer.up.matrix.panel_bytes;
  pool_.parallel_for(panels, panel_grain(panels, panel_bytes, x.rows), [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (const Product& product : products) kernels_.matmul(*product.matrix, x, product.y, product.y_stride, begin, end);
    const std::size_t first = std::size_t{begin} * kPanelRows;
    const auto count = static_cast<std::uint32_t>(std::min(std::size_t{end} * kPanelRows, width) - first);
    for (std::uint32_t row = 0; row < x.rows; ++row) {
      float* gate = workspace_.gate + row * width + first;
      float* up = workspace_.up + row * width + first;
      if (!layer.gate.bias.empty()) kernels_.add(gate, layer.gate.bias.data() + first, count);
      if (!layer.up.bias.empty()) kernels_.add(up, layer.up.bias.data() + first, count);
      kernels_.silu_mul(gate, up, gate, count);
    }
  });
}

void Decoder::add_and_norm(const std::vector<float>& bias, const std::vector<float>& post_norm, const std::vector<float>* norm,
                           std::uint32_t row_begin, std::uint32_t row_end) {
  const std::uint32_t width = config_.hidden_size;
  for (std::uint32_t row = row_begin; row < row_end; ++row) {
    float* hidden = workspace_.hidden + std::size_t{row} * width;
    float* input = workspace_.input + std::size_t{row} * width;
    if (!bias.empty()) kernels_.add(input, bias.data(), width);
    norm_row(input, post_norm, input);
    kernels_.scale(input, config_.residual_scale, width);
    kernels_.add(hidden, input, width);
    if (norm != nullptr) norm_row(hidden, *norm, input);
  }
  if (norm != nullptr) kernels_.prepare(hidden_activations(), row_begin, row_end);
}

void Decoder::norm_row(const float* values, const std::vector<float>& norm, float* out) const {
  if (!norm.empty())
    kernels_.rms_norm(values, norm.data(), config_.norm_epsilon, out, config_.hidden_size);
  else if (out != values)
    std::copy_n(values, config_.hidden_size, out);
}

void Decoder::output(std::span<float> logits) {
  const std::uint32_t width = config_.hidden_size;
  const Activations x = hidden_activations();
  pool_.parallel_for(rows_, row_grain(rows_), [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t i = begin; i < end; ++i) {
      const std::size_t at = std::size_t{i} * width;
      norm_row(workspace_.hidden + at, weights_.output_norm, workspace_.input + at);
    }
    kernels_.prepare(x, begin, end);
  });
  multiply(std::array{Product{&weights_.lm_head(), logits.data(), config_.vocab_size}}, x);
}

void Decoder::prepare(const Activations& x) {
  if (x.mode == ActivationMode::f32) return;
  pool_.parallel_for(x.rows, row_grain(x.rows),
                     [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) { kernels_.prepare(x, begin, end); });
}

void Decoder::multiply(std::span<const Product> products, const Activations& x) {
  std::uint32_t panels = 0;
  std::size_t bytes = 0;
  for (const Product& product : products) {
    panels += product.matrix->num_panels();
    bytes += product.matrix->bytes();
  }
  pool_.parallel_for(panels, panel_grain(panels, bytes / panels, x.rows),
                     [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) { multiply_panels(products, x, begin, end); });
}

// Panels of all products in one numbering.
void Decoder::multiply_panels(std::span<const Product> products, const Activations& x, std::uint32_t begin, std::uint32_t end) const {
  std::uint32_t first = 0;
  for (const Product& product : products) {
    const std::uint32_t last = first + product.matrix->num_panels();
    const std::uint32_t from = std::max(begin, first);
    const std::uint32_t to = std::min(end, last);
    if (from < to) kernels_.matmul(*product.matrix, x, product.y, product.y_stride, from - first, to - first);
    first = last;
  }
}

Activations Decoder::activations(const float* x, std::uint32_t rows, std::uint32_t columns, std::span<std::byte> codes) const {
  const ActivationMode mode = columns % kGroupColumns == 0 ? mode_ : ActivationMode::f32;
  return make_activations(mode, x, columns, rows, columns, codes);
}

Activations Decoder::hidden_activations() const {
  return activations(workspace_.input, rows_, config_.hidden_size, workspace_.hidden_codes);
}

PagedKvLayer Decoder::kv_layer(const KvCache& cache, std::uint32_t layer) {
  const KvLayerLayout& layout = cache.layout().layers[layer];
  return {.keys = cache.keys(layer),
          .values = cache.values(layer),
          .dtype = cache.layout().dtype,
          .block_size = cache.layout().groups[layout.group].kernel_block_size,
          .num_kv_heads = layout.num_kv_heads,
          .head_dim = layout.head_dim,
          .block_stride = layout.block_stride,
          .head_stride = layout.head_stride,
          .token_stride = layout.token_stride};
}

// A few rows cost less than waking a thread.
std::uint32_t Decoder::row_grain(std::uint32_t rows) const {
  constexpr std::uint32_t kFewRows = 8;
  return std::max(kFewRows, rows / (pool_.num_threads() * 4));
}

std::uint32_t Decoder::panel_grain(std::uint32_t panels, std::size_t panel_bytes, std::uint32_t rows) const {
  // Some microseconds of work: one row streams the weights, more rows compute.
  constexpr std::size_t kWorthSharing = 32'768;
  const std::size_t work = panel_bytes * (1 + rows / 4);
  const auto least = static_cast<std::uint32_t>(kWorthSharing / work + 1);
  return std::max(least, panels / (pool_.num_threads() * 8));
}

}  // namespace quire
