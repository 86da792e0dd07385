// down(gelu(up(x) + bias)) + bias: the feed-forward part of layers without a gate.
#include <algorithm>
#include <array>

#include "runtime/kernel/layer_math.h"
#include "runtime/model/layer.h"

namespace quire {
namespace {

class PlainFeedForward final : public FeedForwardHalf {
 public:
  PlainFeedForward(const LayerConfig& config, const LayerWeights& weights, const std::vector<float>* next_norm)
      : config_(config), weights_(weights), next_norm_(next_norm) {}

  // In tiles of rows, as the gated one.
  void run(Pass& pass) const override {
    const Activations all = pass.stream_input();
    const std::uint32_t width = config_.intermediate_size;
    for (std::uint32_t first = 0; first < pass.rows; first += kFeedForwardRows) {
      const std::uint32_t count = std::min(kFeedForwardRows, pass.rows - first);
      const Activations inner = pass.activations(pass.workspace.up, count, width, pass.workspace.inner_codes);
      pass.multiply(std::array{Product{&weights_.up.matrix, pass.workspace.up, width}}, all.slice(first, count));
      pass.for_rows(count, [&](std::uint32_t begin, std::uint32_t end) {
        for (std::uint32_t row = begin; row < end; ++row) {
          float* values = pass.workspace.up + std::size_t{row} * width;
          pass.kernels.add(values, weights_.up.bias.data(), width);
          gelu(values, width);
        }
        pass.kernels.prepare(inner, begin, end);
      });
      float* out = pass.workspace.input + std::size_t{first} * config_.hidden_size;
      pass.multiply(std::array{Product{&weights_.down.matrix, out, config_.hidden_size}}, inner);
      pass.for_rows(count, [&](std::uint32_t begin, std::uint32_t end) {
        pass.add_to_stream(weights_.down.bias, weights_.ffn_post_norm, next_norm_, first + begin, first + end);
      });
    }
  }

 private:
  LayerConfig config_;
  const LayerWeights& weights_;
  const std::vector<float>* next_norm_;
};

}  // namespace

std::unique_ptr<const FeedForwardHalf> make_plain_feed_forward(const LayerConfig& config, const LayerWeights& weights,
                                                               const std::vector<float>* next_norm) {
  return std::make_unique<PlainFeedForward>(config, weights, next_norm);
}

}  // namespace quire
