// A gated delta rule. The input is projected to queries, keys, values and a gate, and to two rates per head. Queries, keys and values are
// convolved over the last tokens. Each token then corrects the state's value for the token's key, and reads the state with its query. The
// result is normed per head, gated and projected back. The state consists of the convolution's earlier inputs and, for each value of each
// head, of as many floats as a key has, in tiles of kScanLanes values. Called by the decoder within a pass, on the thread that leads the
// pass. Threads share channels, heads and requests, never the tokens of one request.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "runtime/model/layers/layer.h"
#include "runtime/model/layers/lora_products.h"
#include "runtime/model/layers/state_steps.h"

namespace quire {
namespace {

// A row of the workspace has three parts:
// - the projected input in the file's order: for each key head its query, its key, and the values and gates of its heads;
// - the rates: for each key head the correction rates of its heads, then their decay rates;
// - the output of the convolution: all queries, all keys, all values.
class GatedDelta final : public AttentionSublayer {
 public:
  GatedDelta(const LayerConfig& config, const LayerWeights& weights)
      : config_(config),
        weights_(weights),
        shared_(config.state.heads / config.state.groups),
        part_(2 * std::size_t{config.state.size} + 2 * std::size_t{shared_} * config.state.head_dim),
        rates_at_(part_ * config.state.groups),
        conv_at_(rates_at_ + 2 * std::size_t{config.state.heads}),
        stride_(config.state_row_size()),
        // rms_norm() divides by the root of the mean, which is the root of the sum divided by the root of the count.
        key_scale_(config.state.size, 1.0F / std::sqrt(static_cast<float>(config.state.size))),
        query_scale_(config.state.size, 1.0F / static_cast<float>(config.state.size)) {}

  void write_kv(Pass& pass, const LayerCache& cache) const override {
    float* rows = pass.workspace.state_input;
    const bool ordered = is_ordered();
    const std::array all{Product{&weights_.state_input.matrix, ordered ? rows + conv_at_ : rows, stride_, &LayerAdapter::state_input},
                         Product{&weights_.state_rates, rows + rates_at_, stride_, &LayerAdapter::state_rates},
                         Product{&weights_.state_gate, rows, stride_}};
    const std::span products = std::span(all).first(ordered ? 3 : 2);
    pass.multiply(products, pass.stream_input());
    const LoraProducts adapted(pass, products, 0, pass.rows);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      adapted.add(begin, end);
      for (std::uint32_t row = begin; row < end; ++row) order_row(pass, row);
    });
    run_conv(pass, cache, config_, weights_, rows + conv_at_, stride_);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row) norm_row(pass.kernels, rows + row * stride_ + conv_at_);
    });
    correct(pass, cache);
  }

  Product mix(Pass& pass, const LayerCache& /*cache*/, float* out) const override {
    const StateShape& state = config_.state;
    const std::uint32_t width = config_.state_output_size();
    const std::uint32_t group_width = shared_ * state.head_dim;
    const Activations x = pass.activations(pass.workspace.mixed, pass.rows, width, pass.workspace.inner_codes);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row) {
        const float* from = pass.workspace.state_input + pass.workspace.sources[row] * stride_;
        float* to = pass.workspace.mixed + std::size_t{row} * width;
        for (std::uint32_t at = 0; at < width; at += state.head_dim)
          pass.kernels.rms_norm(from + values_at() + at, weights_.state_norm.data(), config_.norm_epsilon, to + at, state.head_dim);
        for (std::uint32_t group = 0; group < state.groups; ++group) {
          float* values = to + std::size_t{group} * group_width;
          const float* gate = is_ordered() ? from + std::size_t{group} * group_width : from + (group + 1) * part_ - group_width;
          pass.kernels.silu_mul(gate, values, values, group_width);
        }
      }
      pass.kernels.prepare(x, begin, end);
    });
    const Product product{&weights_.state_output.matrix, out, config_.hidden_size, &LayerAdapter::state_output};
    pass.multiply({&product, 1}, x);
    return product;
  }

  void attend(Pass& pass, const LayerCache& cache) const override { mix_into_stream(pass, cache, weights_, weights_.state_output.bias); }

 private:
  // Returns whether a separate product writes the convolution's inputs to their final location. The gates are then at the beginning of the
  // row.
  [[nodiscard]] bool is_ordered() const { return weights_.state_gate.rows > 0; }
  [[nodiscard]] std::size_t key_width() const { return std::size_t{config_.state.groups} * config_.state.size; }
  [[nodiscard]] std::size_t values_at() const { return conv_at_ + 2 * key_width(); }

  // Copies a row from the file's order to the convolution's order, and computes decays and correction rates.
  void order_row(const Pass& pass, std::uint32_t row) const {
    const StateShape& state = config_.state;
    const float* from = pass.workspace.state_input + row * stride_;
    float* to = pass.workspace.state_input + row * stride_ + conv_at_;
    float* decays = pass.workspace.state_rates + std::size_t{row} * 2 * state.heads;
    const std::size_t values = std::size_t{shared_} * state.head_dim;
    for (std::uint32_t group = 0; group < state.groups; ++group) {
      const float* part = from + group * part_;
      if (!is_ordered()) {
        std::copy_n(part, state.size, to + std::size_t{group} * state.size);
        std::copy_n(part + state.size, state.size, to + key_width() + std::size_t{group} * state.size);
        std::copy_n(part + 2 * std::size_t{state.size}, values, to + 2 * key_width() + group * values);
      }
      const float* rates = from + rates_at_ + std::size_t{group} * 2 * shared_;
      for (std::uint32_t i = 0; i < shared_; ++i) {
        const std::uint32_t head = group * shared_ + i;
        const double step = softplus(double{rates[shared_ + i] + weights_.step_bias[head]});
        decays[head] = static_cast<float>(std::exp(double{weights_.state_decay[head]} * step));
        decays[state.heads + head] = static_cast<float>(1.0 / (1.0 + std::exp(-double{rates[i]})));
      }
    }
  }

  // Scales queries and keys to length 1, and then queries by 1 / sqrt(size).
  void norm_row(const Kernels& kernels, float* row) const {
    const StateShape& state = config_.state;
    const float epsilon = 1e-6F / static_cast<float>(state.size);
    for (std::uint32_t group = 0; group < state.groups; ++group, row += state.size)
      kernels.rms_norm(row, query_scale_.data(), epsilon, row, state.size);
    for (std::uint32_t group = 0; group < state.groups; ++group, row += state.size)
      kernels.rms_norm(row, key_scale_.data(), epsilon, row, state.size);
  }

  void correct(Pass& pass, const LayerCache& cache) const {
    const StateShape& state = config_.state;
    const std::uint32_t tiles = state.head_dim / kScanLanes;
    const std::size_t conv_floats = std::size_t{state.conv_taps - 1} * config_.conv_channels();
    const std::size_t tile_floats = std::size_t{state.size} * kScanLanes;
    const auto body = [&](const StateStep& step, std::uint32_t part, float* from, float* to) {
      const std::uint32_t head = part / tiles;
      float* row = pass.workspace.state_input + step.row * stride_ + conv_at_;
      float* values = row + 2 * key_width() + std::size_t{part} * kScanLanes;
      const float* query = row + std::size_t{head / shared_} * state.size;
      const float* decays = pass.workspace.state_rates + std::size_t{step.row} * 2 * state.heads + head;
      const std::size_t at = conv_floats + part * tile_floats;
      pass.kernels.delta_rule({.v = values,
                               .y = values,
                               .stride = stride_,
                               .queries = query,
                               .keys = query + key_width(),
                               .group_stride = stride_,
                               .decays = decays,
                               .rates = decays + state.heads,
                               .rate_stride = 2 * std::size_t{state.heads},
                               .before = from == nullptr ? nullptr : from + at,
                               .after = to + at,
                               .size = state.size,
                               .rows = step.rows});
    };
    for_state_steps(pass, cache, state.heads * tiles, std::uint64_t{2} * state.size * kScanLanes, body);
  }

  LayerConfig config_;
  const LayerWeights& weights_;
  std::uint32_t shared_;  // heads per key head
  std::size_t part_;      // values of the projected input per key head
  std::size_t rates_at_, conv_at_, stride_;
  std::vector<float> key_scale_, query_scale_;
};

}  // namespace

std::unique_ptr<const AttentionSublayer> make_gated_delta(const LayerConfig& config, const LayerWeights& weights) {
  return std::make_unique<GatedDelta>(config, weights);
}

}  // namespace quire
