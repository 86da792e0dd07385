// A gated short convolution. The input is projected to gates b and c and to values. b * values is convolved over the last tokens, and c
// times the result is projected back. The state consists of the convolution's earlier inputs. Called by the decoder within a pass, on the
// thread that leads the pass. Threads share channels and requests, never the tokens of one request.
#include <algorithm>

#include "runtime/model/layers/layer.h"
#include "runtime/model/layers/lora_products.h"
#include "runtime/model/layers/state_steps.h"

namespace quire {
namespace {

class ShortConv final : public AttentionSublayer {
 public:
  ShortConv(const LayerConfig& config, const LayerWeights& weights) : config_(config), weights_(weights) {}

  void write_kv(Pass& pass, const LayerCache& cache) const override {
    const std::uint32_t width = config_.hidden_size;
    const std::size_t stride = config_.state_input_size();
    const Product product{&weights_.state_input.matrix, pass.workspace.state_input, stride, &LayerAdapter::state_input};
    pass.multiply({&product, 1}, pass.stream_input());
    const LoraProducts adapted(pass, {&product, 1}, 0, pass.rows);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      adapted.add(begin, end);
      for (std::uint32_t row = begin; row < end; ++row) {
        float* gates = pass.workspace.state_input + row * stride;
        if (!weights_.state_input.bias.empty()) pass.kernels.add(gates, weights_.state_input.bias.data(), config_.state_input_size());
        pass.kernels.multiply(gates + 2 * std::size_t{width}, gates, width);
      }
    });
    run_conv(pass, cache, config_, weights_, pass.workspace.state_input + 2 * std::size_t{width}, stride);
  }

  Product mix(Pass& pass, const LayerCache& /*cache*/, float* mixed) const override {
    const std::uint32_t width = config_.hidden_size;
    const Activations x = pass.activations(pass.workspace.mixed, pass.rows, width, pass.workspace.inner_codes);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row) {
        const float* gates = pass.workspace.state_input + std::size_t{pass.workspace.sources[row]} * config_.state_input_size();
        float* out = pass.workspace.mixed + std::size_t{row} * width;
        std::copy_n(gates + 2 * std::size_t{width}, width, out);
        pass.kernels.multiply(out, gates + width, width);
      }
      pass.kernels.prepare(x, begin, end);
    });
    const Product product{&weights_.state_output.matrix, mixed, width, &LayerAdapter::state_output};
    pass.multiply({&product, 1}, x);
    return product;
  }

  void attend(Pass& pass, const LayerCache& cache) const override { mix_into_stream(pass, cache, weights_, weights_.state_output.bias); }

 private:
  LayerConfig config_;
  const LayerWeights& weights_;
};

}  // namespace

std::unique_ptr<const AttentionSublayer> make_short_conv(const LayerConfig& config, const LayerWeights& weights) {
  return std::make_unique<ShortConv>(config, weights);
}

}  // namespace quire
