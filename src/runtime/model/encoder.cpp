// Runs the encoder. Called by the worker before the pass of the step that needs the input, on the thread that leads the step. The layers
// are decoder layers, except that each row attends to all rows (bidirectional_attention_sublayer.cpp). A convolution is a matrix product: a
// row and its neighbours are adjacent in memory and form one input.
#include "runtime/model/encoder.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "runtime/kernel/layer_math.h"

namespace quire {
namespace {

WorkspaceLimits limits_of(const ModelConfig& config, const ThreadPool& pool) {
  const std::uint32_t rows = config.encoder.num_positions;
  return {.rows = rows, .sequences = 1, .threads = pool.num_threads(), .positions = rows};
}

}  // namespace

Encoder::Encoder(const ModelConfig& config, const DecoderWeights& weights, const Kernels& kernels, ActivationMode mode, ThreadPool& pool)
    : shape_(config.encoder),
      num_layers_(config.num_layers),
      weights_(weights),
      layers_(make_encoder_layers(config.encoder_config(), weights.encoder)),
      pass_(config.encoder_config(), kernels, mode, limits_of(config, pool), pool),
      features_((2 * std::size_t{shape_.num_positions} + 2) * shape_.num_features),
      conv_output_((2 * std::size_t{shape_.num_positions} + 2) * config.hidden_size),
      kv_slots_(shape_.num_positions) {}

std::uint64_t Encoder::workspace_bytes() const {
  return pass_.workspace.bytes() + (features_.size() + conv_output_.size()) * sizeof(float);
}

void Encoder::encode(std::span<const float> features, Slot slot, KvCache& cache, const BlockTables& tables) {
  const KvLayout& layout = cache.layout();
  const std::uint32_t group = layout.layers[num_layers_].group;
  QUIRE_CHECK(features.size() == 2 * std::size_t{shape_.num_positions} * shape_.num_features,
              "the features have the size that the encoder needs");
  QUIRE_CHECK(layout.groups[group].keeps_encoder_output(), "the KV cache has a group for the encoder output");
  for (std::uint32_t i = 0; i < shape_.num_positions; ++i) {
    kv_slots_[i] = tables.kv_slot(group, slot, i);
    QUIRE_CHECK(kv_slots_[i] >= 0, "each position has a KV slot");
  }
  pass_.rows = shape_.num_positions;
  convolve(features);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    layers_[i].attention->write_kv(pass_, {});
    layers_[i].attention->attend(pass_, {});
    layers_[i].feed_forward->run(pass_);
  }
  for (std::uint32_t i = 0; i < num_layers_; ++i) write_cross_kv(i, kv_layer(cache, num_layers_ + i));
}

// Runs the convolutions. Writes the residual stream and its normed copy, as a layer expects them.
void Encoder::convolve(std::span<const float> features) {
  const std::uint32_t width = pass_.shape.hidden_size, rows = pass_.rows;
  std::ranges::copy(features, features_.begin() + shape_.num_features);
  const auto product = [&](const Linear& conv, const float* x, std::uint32_t stride, std::uint32_t count, std::uint32_t inputs, float* y) {
    const Activations in = make_activations(ActivationMode::f32, x, stride, count, inputs * EncoderShape::kTaps, {});
    pass_.multiply(std::array{Product{&conv.matrix, y, width}}, in);
    pass_.for_rows(count, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row) {
        pass_.kernels.add(y + std::size_t{row} * width, conv.bias.data(), width);
        gelu(y + std::size_t{row} * width, width);
      }
    });
  };
  const EncoderWeights& weights = weights_.encoder;
  product(weights.first_conv, features_.data(), shape_.num_features, 2 * rows, shape_.num_features, conv_output_.data() + width);
  product(weights.second_conv, conv_output_.data(), 2 * width, rows, width, pass_.workspace.hidden);
  const Activations stream = pass_.stream_input();
  pass_.for_rows(rows, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t row = begin; row < end; ++row) {
      float* hidden = pass_.workspace.hidden + std::size_t{row} * width;
      pass_.kernels.add(hidden, weights.positions.data() + std::size_t{row} * width, width);
      pass_.norm_row(hidden, weights.layers.front().attn_norm, pass_.workspace.input + std::size_t{row} * width);
    }
    pass_.kernels.prepare(stream, begin, end);
  });
}

// Writes the keys and values of a decoder layer. The last encoder layer has already normed the stream.
void Encoder::write_cross_kv(std::uint32_t layer, const PagedKvLayer& kv) {
  const CrossWeights& cross = weights_.layers[layer].cross;
  const std::uint32_t width = kv.num_kv_heads * kv.head_dim;
  const std::size_t stride = 2 * std::size_t{width};
  float* k = pass_.workspace.qkv;
  float* v = k + width;
  pass_.multiply(std::array{Product{&cross.k.matrix, k, stride}, Product{&cross.v.matrix, v, stride}}, pass_.stream_input());
  pass_.for_rows(pass_.rows, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t row = begin; row < end; ++row) pass_.kernels.add(v + row * stride, cross.v.bias.data(), width);
    pass_.kernels.write_kv(kv, k + begin * stride, v + begin * stride, stride, std::span(kv_slots_).subspan(begin, end - begin));
  });
}

}  // namespace quire
