// A Mamba-2 layer. The input is projected to a gate, to values with the b and c of their groups, and to a time step (dt) per head. Values,
// b and c are convolved over the last tokens. A selective scan runs over the tokens; its output is gated, normed and projected back. The
// state consists of the convolution's earlier inputs and of state.size floats for each value of each head, in tiles of kScanLanes values.
// Called by the decoder within a pass, on the thread that leads the pass. Threads share channels, heads and requests, never the tokens of
// one request.
#include <algorithm>
#include <cmath>

#include "runtime/model/layers/layer.h"
#include "runtime/model/layers/lora_products.h"
#include "runtime/model/layers/state_steps.h"

namespace quire {
namespace {

class Mamba2 final : public AttentionSublayer {
 public:
  Mamba2(const LayerConfig& config, const LayerWeights& weights)
      : config_(config),
        weights_(weights),
        inner_(config.state_output_size()),
        group_width_(std::size_t{config.state.groups} * config.state.size),
        stride_(config.state_input_size()) {}

  void write_kv(Pass& pass, const LayerCache& cache) const override {
    float* projected = pass.workspace.state_input;
    const Product product{&weights_.state_input.matrix, projected, stride_, &LayerAdapter::state_input};
    pass.multiply({&product, 1}, pass.stream_input());
    const LoraProducts adapted(pass, {&product, 1}, 0, pass.rows);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      adapted.add(begin, end);
      for (std::uint32_t row = begin; row < end; ++row) finish_row(pass, row);
    });
    run_conv(pass, cache, config_, weights_, projected + inner_, stride_);
    scan(pass, cache);
  }

  Product mix(Pass& pass, const LayerCache& /*cache*/, float* out) const override {
    const Activations x = pass.activations(pass.workspace.mixed, pass.rows, inner_, pass.workspace.inner_codes);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row) {
        const float* gate = pass.workspace.state_input + pass.workspace.sources[row] * stride_;
        gate_row(pass.kernels, gate, gate + inner_, pass.workspace.mixed + std::size_t{row} * inner_);
      }
      pass.kernels.prepare(x, begin, end);
    });
    const Product product{&weights_.state_output.matrix, out, config_.hidden_size, &LayerAdapter::state_output};
    pass.multiply({&product, 1}, x);
    return product;
  }

  void attend(Pass& pass, const LayerCache& cache) const override { mix_into_stream(pass, cache, weights_, weights_.state_output.bias); }

 private:
  // Applies biases and scales to a row of the projected input. Replaces the time step (dt) of each head by softplus(dt + bias), and writes
  // the decay exp(dt * A) to a separate buffer.
  void finish_row(const Pass& pass, std::uint32_t row) const {
    const StateShape& state = config_.state;
    float* at = pass.workspace.state_input + row * stride_;
    pass.kernels.scale(at, state.input_scale, static_cast<std::uint32_t>(stride_));
    if (!weights_.state_input.bias.empty()) pass.kernels.add(at, weights_.state_input.bias.data(), static_cast<std::uint32_t>(stride_));
    const std::size_t widths[] = {inner_, inner_, group_width_, group_width_, state.heads};
    for (std::size_t part = 0; part < std::size(widths); at += widths[part++])
      pass.kernels.scale(at, state.part_scales[part], static_cast<std::uint32_t>(widths[part]));
    float* steps = at - state.heads;
    float* decays = pass.workspace.state_rates + std::size_t{row} * state.heads;
    for (std::uint32_t head = 0; head < state.heads; ++head) {
      const auto step = static_cast<float>(softplus(double{steps[head] + weights_.step_bias[head]}));
      steps[head] = step;
      decays[head] = static_cast<float>(std::exp(double{step * weights_.state_decay[head]}));
    }
  }

  // Scans every value of every head in place. A thread reads and writes the values of its tile, and reads b and c, which no thread writes.
  void scan(Pass& pass, const LayerCache& cache) const {
    const StateShape& state = config_.state;
    const std::uint32_t tiles = state.head_dim / kScanLanes;
    const std::size_t conv_floats = std::size_t{state.conv_taps - 1} * config_.conv_channels();
    const std::size_t tile_floats = std::size_t{state.size} * kScanLanes;
    const auto body = [&](const StateStep& step, std::uint32_t part, float* from, float* to) {
      const std::uint32_t head = part / tiles;
      float* row = pass.workspace.state_input + step.row * stride_;
      float* x = row + inner_ + std::size_t{part} * kScanLanes;
      const float* b = row + 2 * inner_ + std::size_t{head / (state.heads / state.groups)} * state.size;
      const std::size_t at = conv_floats + part * tile_floats;
      pass.kernels.selective_scan({.x = x,
                                   .y = x,
                                   .stride = stride_,
                                   .b = b,
                                   .c = b + group_width_,
                                   .group_stride = stride_,
                                   .steps = row + 2 * inner_ + 2 * group_width_ + head,
                                   .decays = pass.workspace.state_rates + std::size_t{step.row} * state.heads + head,
                                   .step_stride = stride_,
                                   .decay_stride = state.heads,
                                   .before = from == nullptr ? nullptr : from + at,
                                   .after = to + at,
                                   .skip = weights_.state_skip[head],
                                   .size = state.size,
                                   .rows = step.rows});
    };
    for_state_steps(pass, cache, state.heads * tiles, std::uint64_t{state.size} * kScanLanes, body);
  }

  void gate_row(const Kernels& kernels, const float* gate, const float* y, float* out) const {
    if (weights_.state_norm.empty()) return kernels.silu_mul(gate, y, out, inner_);
    const std::uint32_t width = inner_ / config_.state.norm_groups;
    if (!config_.state.is_gate_after_norm) kernels.silu_mul(gate, y, out, inner_);
    for (std::uint32_t at = 0; at < inner_; at += width)
      kernels.rms_norm(config_.state.is_gate_after_norm ? y + at : out + at, weights_.state_norm.data() + at, config_.norm_epsilon,
                       out + at, width);
    if (config_.state.is_gate_after_norm) kernels.silu_mul(gate, out, out, inner_);
  }

  LayerConfig config_;
  const LayerWeights& weights_;
  std::uint32_t inner_;      // values of all heads
  std::size_t group_width_;  // values of b, or of c, for all groups
  std::size_t stride_;       // values of the projected input
};

}  // namespace

std::unique_ptr<const AttentionSublayer> make_mamba2(const LayerConfig& config, const LayerWeights& weights) {
  return std::make_unique<Mamba2>(config, weights);
}

}  // namespace quire
