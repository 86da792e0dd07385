#include <algorithm>
#include <array>
#include <span>

#include "runtime/model/layers/layer.h"
#include "runtime/model/layers/lora_products.h"

namespace quire {
namespace {

// Computes down(activation(gate(x)) * up(x)), or down(activation(gate(x))) if the activation has no gate.
class DenseFeedForward final : public FeedForwardSublayer {
 public:
  DenseFeedForward(const LayerConfig& config, const LayerWeights& weights, const std::vector<float>* next_norm)
      : config_(config), weights_(weights), next_norm_(next_norm) {}

  // Processes tiles of rows. The result of a tile overwrites the stream and the input of its rows, which no other tile reads.
  void run(Pass& pass) const override {
    const Activations all = pass.stream_input();
    for (std::uint32_t first = 0; first < pass.rows; first += kFeedForwardRows) {
      const std::uint32_t count = std::min(kFeedForwardRows, pass.rows - first);
      const Activations inner = pass.activations(pass.workspace.gate, count, config_.intermediate_size, pass.workspace.inner_codes);
      gate_and_up(pass, first, all.slice(first, count), inner);
      float* out = pass.workspace.input + std::size_t{first} * config_.hidden_size;
      const std::array products{Product{&weights_.down.matrix, out, config_.hidden_size, &LayerAdapter::down}};
      pass.multiply(products, inner, first);
      const LoraProducts adapted(pass, products, first, count);
      pass.for_rows(count, [&](std::uint32_t begin, std::uint32_t end) {
        adapted.add(begin, end);
        if (config_.down_scale != 1.0F) scale_rows(pass, first + begin, first + end);
        pass.add_to_stream(weights_.down.bias, weights_.ffn_post_norm, next_norm_, first + begin, first + end);
      });
    }
  }

 private:
  // Computes gate and up. The same thread computes the same panels of both products, then joins them and prepares the result as part of
  // `inner`.
  void gate_and_up(Pass& pass, std::uint32_t first_row, const Activations& x, const Activations& inner) const {
    const Linear& gate = weights_.gate;
    const Linear& up = weights_.up;
    const std::size_t width = config_.intermediate_size;
    const std::uint32_t panels = gate.matrix.num_panels();
    const bool is_gated = up.matrix.rows > 0;
    const std::array both{Product{&gate.matrix, pass.workspace.gate, width, is_gated ? &LayerAdapter::gate : &LayerAdapter::up},
                          Product{&up.matrix, pass.workspace.up, width, &LayerAdapter::up}};
    const std::span<const Product> products = std::span(both).first(is_gated ? 2 : 1);
    const LoraProducts adapted(pass, products, first_row, x.rows);
    pass.pool.parallel_for(adapted.num_units(), 1,
                           [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) { adapted.project(x, begin, end); });
    const Activations gate_x = pass.reordered_input(gate.matrix, x, 0);
    const Activations up_x = !is_gated || up.matrix.input_order == gate.matrix.input_order ? gate_x : pass.reordered_input(up.matrix, x, 1);
    const std::uint32_t grain = pass.panel_grain(panels, gate.matrix.panel_bytes + up.matrix.panel_bytes, x.rows);
    pass.pool.parallel_for(panels, grain, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
      pass.kernels.matmul(gate.matrix, gate_x, pass.workspace.gate, width, begin, end);
      if (is_gated) pass.kernels.matmul(up.matrix, up_x, pass.workspace.up, width, begin, end);
      for (std::uint32_t p = 0; p < products.size(); ++p) adapted.add(p, 0, x.rows, begin, end);
      const std::uint32_t first = begin * kPanelRows;
      const auto count = static_cast<std::uint32_t>(std::min(std::size_t{end} * kPanelRows, width) - first);
      for (std::uint32_t row = 0; row < x.rows; ++row) join(pass, row * width + first, first, count);
      if (inner.mode != ActivationMode::f32)
        pass.kernels.prepare_groups(inner, 0, inner.rows, first / kGroupColumns, (first + count) / kGroupColumns);
    });
  }

  // Multiplies rows by down_scale. No bias needs to be considered, because models with a scale have no bias.
  void scale_rows(const Pass& pass, std::uint32_t begin, std::uint32_t end) const {
    pass.kernels.scale(pass.workspace.input + std::size_t{begin} * config_.hidden_size, config_.down_scale,
                       (end - begin) * config_.hidden_size);
  }

  // Joins `count` values of gate and up of one row, which begin at `at` in the buffers and at output `first`.
  void join(const Pass& pass, std::size_t at, std::size_t first, std::uint32_t count) const {
    float* gate = pass.workspace.gate + at;
    float* up = pass.workspace.up + at;
    if (!weights_.gate.bias.empty()) pass.kernels.add(gate, weights_.gate.bias.data() + first, count);
    if (!weights_.up.bias.empty()) pass.kernels.add(up, weights_.up.bias.data() + first, count);
    pass.kernels.scale(gate, config_.gate_scale, count);
    pass.activate(gate, up, count);
  }

  LayerConfig config_;
  const LayerWeights& weights_;
  const std::vector<float>* next_norm_;
};

}  // namespace

std::unique_ptr<const FeedForwardSublayer> make_feed_forward(const LayerConfig& config, const LayerWeights& weights,
                                                             const std::vector<float>* next_norm) {
  return std::make_unique<DenseFeedForward>(config, weights, next_norm);
}

}  // namespace quire
