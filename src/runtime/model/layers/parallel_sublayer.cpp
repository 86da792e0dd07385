// Attention and a recurrence with a state in parallel, on one input: both results are scaled and added. Called by the decoder within a
// pass, on the thread that leads the pass.
#include <utility>

#include "runtime/model/layers/layer.h"
#include "runtime/model/layers/lora_products.h"

namespace quire {
namespace {

class ParallelSublayer final : public AttentionSublayer {
 public:
  ParallelSublayer(const LayerConfig& config, const LayerWeights& weights, std::unique_ptr<const AttentionSublayer> attention,
                   std::unique_ptr<const AttentionSublayer> recurrence)
      : config_(config), weights_(weights), attention_(std::move(attention)), recurrence_(std::move(recurrence)) {}

  void write_kv(Pass& pass, const LayerCache& cache) const override {
    attention_->write_kv(pass, cache);
    recurrence_->write_kv(pass, cache);
  }

  Product mix(Pass& pass, const LayerCache& cache, float* out) const override {
    add_lora(pass, attention_->mix(pass, cache, out));
    const Product product = recurrence_->mix(pass, cache, pass.workspace.parallel_output);
    const LoraProducts adapted(pass, {&product, 1}, 0, pass.rows);
    const std::uint32_t width = config_.hidden_size;
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      adapted.add(begin, end);
      for (std::uint32_t row = begin; row < end; ++row) {
        float* sum = out + std::size_t{row} * width;
        float* other = pass.workspace.parallel_output + std::size_t{row} * width;
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
  // Adds the adapters' part now, because the next product overwrites the values between its two steps.
  static void add_lora(Pass& pass, const Product& product) {
    const LoraProducts adapted(pass, {&product, 1}, 0, pass.rows);
    if (adapted.num_units() > 0) pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) { adapted.add(begin, end); });
  }

  void add_bias(const Kernels& kernels, float* x, const std::vector<float>& bias) const {
    if (!bias.empty()) kernels.add(x, bias.data(), config_.hidden_size);
  }

  LayerConfig config_;
  const LayerWeights& weights_;
  std::unique_ptr<const AttentionSublayer> attention_, recurrence_;
};

}  // namespace

std::unique_ptr<const AttentionSublayer> make_parallel(const LayerConfig& config, const LayerWeights& weights,
                                                       std::unique_ptr<const AttentionSublayer> attention,
                                                       std::unique_ptr<const AttentionSublayer> recurrence) {
  return std::make_unique<ParallelSublayer>(config, weights, std::move(attention), std::move(recurrence));
}

}  // namespace quire
