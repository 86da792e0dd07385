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
      frequencies_(config.rope_frequencies()),
      window_frequencies_(config.window_rope_frequencies()) {
  const bool is_long = !weights_.rope_long_factors.empty() && limits.positions > config.rope_original_context;
  const std::vector<float>& factors = is_long ? weights_.rope_long_factors : weights_.rope_factors;
  for (std::size_t i = 0; i < factors.size(); ++i) frequencies_[i] /= factors[i];
  for (float& weight : weights_.output_norm) weight /= config.logit_divisor;
}

void Decoder::forward(const BatchInput& input, KvCache& cache, const BlockTables& tables, std::span<float> logits, PassHooks* hooks) {
  check(input, cache, logits);
  rows_ = static_cast<std::uint32_t>(input.tokens.size());
  if (rows_ == 0) return;
  lay_out(input, cache.layout(), tables);
  embed(input);
  for (std::uint32_t i = 0; i < config_.num_layers; ++i) {
    const bool is_last = i + 1 == config_.num_layers;
    const PagedKvLayer kv = kv_layer(cache, i);
    const std::uint32_t group = cache.layout().layers[i].group;
    const GroupPass& pass = workspace_.groups[group];
    if (hooks != nullptr) hooks->before_attention(i);
    write_kv(i, kv, pass);
    if (hooks != nullptr) hooks->after_kv_write(i);
    if (is_last) keep_logit_rows(input, tables, group);
    if (rows_ == 0) return;
    attend(weights_.layers[i], kv, pass);
    feed_forward(weights_.layers[i], is_last ? nullptr : &weights_.layers[i + 1].attn_norm);
  }
  output(logits);
}

void Decoder::check(const BatchInput& input, const KvCache& cache, std::span<const float> logits) const {
  const WorkspaceLimits& limits = workspace_.limits();
  QUIRE_CHECK(input.tokens.size() <= limits.rows, "more rows than max_num_batched_tokens");
  QUIRE_CHECK(input.sequences.size() <= limits.sequences && input.logit_rows.size() <= limits.sequences, "more than max_num_seqs");
  QUIRE_CHECK(logits.size() == input.logit_rows.size() * config_.vocab_size, "logits of another size");
  QUIRE_CHECK(cache.layout().layers.size() == config_.num_layers && cache.layout().groups.size() <= limits.groups,
              "a KV cache of another model");
  for (std::uint32_t i = 0; i < config_.num_layers; ++i) {
    const KvLayerLayout& layer = cache.layout().layers[i];
    QUIRE_CHECK(layer.num_kv_heads == config_.num_kv_heads && layer.head_dim == config_.head_dim, "a KV cache of another model");
    QUIRE_CHECK(cache.layout().groups[layer.group].sliding_window() == config_.window(i), "a KV cache of other windows");
  }
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

void Decoder::embed(const BatchInput& input) {
  const Activations x = hidden_activations();
  pool_.parallel_for(rows_, row_grain(rows_), [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t row = begin; row < end; ++row) {
      float* hidden = workspace_.hidden + std::size_t{row} * config_.hidden_size;
      unpack_row(weights_.embedding, static_cast<std::uint32_t>(input.tokens[row]), {hidden, config_.hidden_size});
      kernels_.scale(hidden, config_.embedding_scale, config_.hidden_size);
      take_angles(row);
      norm_row(hidden, weights_.layers[0].attn_norm, workspace_.input + row * x.stride);
    }
    kernels_.prepare(x, begin, end);
  });
}

void Decoder::take_angles(std::uint32_t row) {
  const std::uint32_t half = config_.rotary_dim / 2;
  const std::size_t at = std::size_t{row} * half;
  const std::uint32_t position = workspace_.positions[row];
  rope_angles(position, frequencies_, {workspace_.cosines + at, half}, {workspace_.sines + at, half});
  kernels_.scale(workspace_.cosines + at, config_.rope_attention_factor, half);
  kernels_.scale(workspace_.sines + at, config_.rope_attention_factor, half);
  if (!window_frequencies_.empty())
    rope_angles(position, window_frequencies_, {workspace_.window_cosines + at, half}, {workspace_.window_sines + at, half});
}

// Queries, keys and values of every row; keys and values go to the cache.
void Decoder::write_kv(std::uint32_t index, const PagedKvLayer& kv, const GroupPass& pass) {
  const LayerWeights& layer = weights_.layers[index];
  const std::size_t q_size = config_.q_size();
  const std::size_t kv_size = config_.kv_size();
  float* qkv = workspace_.qkv;
  multiply(std::array{Product{&layer.q.matrix, qkv, qkv_size()}, Product{&layer.k.matrix, qkv + q_size, qkv_size()},
                      Product{&layer.v.matrix, qkv + q_size + kv_size, qkv_size()}},
           hidden_activations());
  pool_.parallel_for(rows_, row_grain(rows_), [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    rotate_and_write(index, kv, pass.kv_slots, begin, end);
  });
}

void Decoder::attend(const LayerWeights& layer, const PagedKvLayer& kv, const GroupPass& pass) {
  run_attention(kv, pass);
  const Activations x = activations(workspace_.attention, rows_, config_.q_size(), workspace_.inner_codes);
  prepare(x);
  multiply(std::array{Product{&layer.attn_output.matrix, workspace_.input, config_.hidden_size}}, x);
  pool_.parallel_for(rows_, row_grain(rows_), [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    add_and_norm(layer.attn_output.bias, layer.attn_post_norm, &layer.ffn_norm, begin, end);
  });
}

void Decoder::rotate_and_write(std::uint32_t index, const PagedKvLayer& kv, const std::int64_t* kv_slots, std::uint32_t row_begin,
                               std::uint32_t row_end) {
  const LayerWeights& layer = weights_.layers[index];
  const std::uint32_t q_size = config_.q_size();
  const std::uint32_t kv_size = config_.kv_size();
  for (std::uint32_t row = row_begin; row < row_end; ++row) {
    float* q = workspace_.qkv + row * qkv_size();
    finish_heads(q, config_.num_heads, layer.q.bias, layer.q_norm);
    finish_heads(q + q_size, config_.num_kv_heads, layer.k.bias, layer.k_norm);
    if (!layer.v.bias.empty()) kernels_.add(q + q_size + kv_size, layer.v.bias.data(), kv_size);
    if (config_.layer_rotates(index)) rotate(index, row, q);
  }
  const float* k = workspace_.qkv + row_begin * qkv_size() + q_size;
  kernels_.write_kv(kv, k, k + kv_size, qkv_size(), {kv_slots + row_begin, row_end - row_begin});
}

// One row of q and k: the heads of k follow those of q.
void Decoder::rotate(std::uint32_t layer, std::uint32_t row, float* qk) const {
  const std::size_t at = std::size_t{row} * (config_.rotary_dim / 2);
  const bool in_window = config_.window(layer) > 0 && !window_frequencies_.empty();
  const float* cosines = (in_window ? workspace_.window_cosines : workspace_.cosines) + at;
  const float* sines = (in_window ? workspace_.window_sines : workspace_.sines) + at;
  kernels_.rope(config_.rope_style, qk, config_.num_heads + config_.num_kv_heads, config_.head_dim, config_.rotary_dim, cosines, sines);
}

// Bias and norm of one row of q or k; a norm is as wide as one head or as all of them.
void Decoder::finish_heads(float* x, std::uint32_t num_heads, const std::vector<float>& bias, const std::vector<float>& norm) const {
  const std::uint32_t width = num_heads * config_.head_dim;
  if (!bias.empty()) kernels_.add(x, bias.data(), width);
  const auto norm_width = static_cast<std::uint32_t>(norm.size());
  for (std::uint32_t at = 0; at < width && norm_width > 0; at += norm_width)
    kernels_.rms_norm(x + at, norm.data(), config_.norm_epsilon, x + at, norm_width);
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
  const auto activate = config_.activation == GateActivation::silu ? kernels_.silu_mul : kernels_.gelu_mul;
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
      activate(gate, up, gate, count);
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
  if (config_.logit_soft_cap == 0.0F) return;
  pool_.parallel_for(rows_, 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t i = begin; i < end; ++i)
      kernels_.soft_cap(logits.data() + std::size_t{i} * config_.vocab_size, config_.logit_soft_cap, config_.vocab_size);
  });
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
