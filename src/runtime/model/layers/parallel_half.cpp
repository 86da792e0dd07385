// Attention and a layer with a state side by side, of one input: what both make of it is scaled and added up. Called by the decoder within
// a pass, on the thread that leads it.
#include <utility>

#include "runtime/model/layers/adapted_products.h"
#include "runtime/model/layers/layer.h"

namespace quire {
namespace {

class ParallelHalf final : public AttentionHalf {
 public:
  ParallelHalf(const LayerConfig& config, const LayerWeights& weights, std::unique_ptr<const AttentionHalf> attention,
               std::unique_ptr<const AttentionHalf> recurrence)
      : config_(config), weights_(weights), attention_(std::move(attention)), recurrence_(std::move(recurrence)) {}

  void write_kv(Pass& pass, const LayerCache& cache) const override {
    attention_->write_kv(pass, cache);
    recurrence_->write_kv(pass, cache);
  }

  Product mix(Pass& pass, const LayerCache& cache, float* out) const override {
    add_adapted(pass, attention_->mix(pass, cache, out));
    const Product product = recurrence_->mix(pass, cache, pass.workspace.beside);
    const AdaptedProducts adapted(pass, {&product, 1}, 0, pass.rows);
    const std::uint32_t width = config_.hidden_size;
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      adapted.add(begin, end);
      for (std::uint32_t row = begin; row < end; ++row) {
        float* sum = out + std::size_t{row} * width;
        float* other = pass.workspace.beside + std::size_t{row} * width;
        add_bias(pass.kernels, sum, weights_.attn_output.bias);
        add_bias(pass.kernels, other, weights_.state_output.bias);
        pass.kernels.scale(sum, config_.attention_output_scale, width);
        pass.kernels.scale(other, config_.state.output_scale, width);
        pass.kernels.add(sum, other, width);
      }
    });
    return {};
  }

  void attend(Pass& pass, const LayerCache& cache) const override { mix_into_stream(pass, cache, weights_); }

 private:
  // What lies between its two halves would be written over by that of the next product.
  static void add_adapted(Pass& pass, const Product& product) {
    const AdaptedProducts adapted(pass, {&product, 1}, 0, pass.rows);
    if (adapted.num_units() > 0) pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) { adapted.add(begin, end); });
  }

  void add_bias(const Kernels& kernels, float* x, const std::vector<float>& bias) const {
    if (!bias.empty()) kernels.add(x, bias.data(), config_.hidden_size);
  }

  LayerConfig config_;
  const LayerWeights& weights_;
  std::unique_ptr<const AttentionHalf> attention_, recurrence_;
};

}  // namespace

std::unique_ptr<const AttentionHalf> make_parallel(const LayerConfig& config, const LayerWeights& weights,
                                                   std::unique_ptr<const AttentionHalf> attention,
                                                   std::unique_ptr<const AttentionHalf> recurrence) {
  return std::make_unique<ParallelHalf>(config, weights, std::move(attention), std::move(recurrence));
}

}  // namespace quire
