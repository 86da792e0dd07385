// Multi-head latent attention (DeepSeek-V2, section 2.1). The cache has one normed latent and one rotated key per token, for all heads. The
// per-head matrices for keys and values are applied to the query and to the attention output instead, so the kernels see one KV head whose
// keys are also its values. Called by the decoder within a pass, like attention_sublayer.cpp. Phases are split by head and rows; a row's
// bits depend only on this row.
#include <algorithm>
#include <array>

#include "runtime/model/layers/attention_items.h"
#include "runtime/model/layers/layer.h"

namespace quire {
namespace {

class LatentAttention final : public AttentionSublayer {
 public:
  LatentAttention(const LayerConfig& config, const LayerWeights& weights) : config_(config), weights_(weights) {}

  void write_kv(Pass& pass, const LayerCache& cache) const override {
    const std::size_t stride = config_.qkv_size();
    float* keys = pass.workspace.qkv + config_.q_size();
    multiply_inputs(pass, keys);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row) finish_row(pass, row);
      const float* from = keys + begin * stride;
      pass.kernels.write_kv(cache.kv, from, from, stride, {cache.attention->kv_slots + begin, end - begin});
    });
    const std::size_t q_stride = q_width();
    multiply_heads(pass, weights_.latent.k_up, [&](std::uint32_t head) {
      return Heads{.x = pass.workspace.latent.q + std::size_t{head} * query_dim(),
                   .x_stride = q_stride,
                   .columns = config_.latent.key_dim,
                   .y = pass.workspace.qkv + std::size_t{head} * config_.head_dim,
                   .y_stride = stride};
    });
  }

  Product mix(Pass& pass, const LayerCache& cache, float* out) const override {
    attend_items(pass, cache.kv, *cache.attention, nullptr, [](const AttentionItem&) {});
    const std::uint32_t width = config_.attended_size();
    multiply_heads(pass, weights_.latent.v_up, [&](std::uint32_t head) {
      return Heads{.x = pass.workspace.mixed + std::size_t{head} * config_.head_dim,
                   .x_stride = config_.q_size(),
                   .columns = config_.latent.kv_rank,
                   .y = pass.workspace.latent.values + std::size_t{head} * config_.latent.value_dim,
                   .y_stride = width};
    });
    const Activations x = pass.activations(pass.workspace.latent.values, pass.rows, width, pass.workspace.inner_codes);
    pass.for_rows(x.rows, [&](std::uint32_t begin, std::uint32_t end) { pass.kernels.prepare(x, begin, end); });
    const Product product{&weights_.attn_output.matrix, out, config_.hidden_size};
    pass.multiply({&product, 1}, x);
    return product;
  }

  void attend(Pass& pass, const LayerCache& cache) const override { mix_into_stream(pass, cache, weights_); }

 private:
  // The product of one head: the input of row r is at x + r * x_stride, its output at y + r * y_stride.
  struct Heads {
    const float* x;
    std::size_t x_stride;
    std::uint32_t columns;
    float* y;
    std::size_t y_stride;
  };

  [[nodiscard]] std::uint32_t query_dim() const { return config_.latent.key_dim + config_.rotary_dim; }
  [[nodiscard]] std::size_t q_width() const { return std::size_t{config_.num_heads} * query_dim(); }

  // Computes the queries of all heads, and the token's latent with its rotated key, before norms and rotation.
  void multiply_inputs(Pass& pass, float* keys) const {
    const LatentBuffers& latent = pass.workspace.latent;
    const Product of_keys{&weights_.latent.kv_a, keys, config_.qkv_size()};
    if (config_.latent.q_rank == 0)
      return pass.multiply(std::array{Product{&weights_.q.matrix, latent.q, q_width()}, of_keys}, pass.stream_input());
    pass.multiply(std::array{Product{&weights_.latent.q_a, latent.q_a, config_.latent.q_rank}, of_keys}, pass.stream_input());
    const Activations x = pass.activations(latent.q_a, pass.rows, config_.latent.q_rank, latent.q_a_codes);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row)
        norm(pass, latent.q_a + std::size_t{row} * config_.latent.q_rank, weights_.latent.q_a_norm);
      pass.kernels.prepare(x, begin, end);
    });
    pass.multiply(std::array{Product{&weights_.q.matrix, latent.q, q_width()}}, x);
  }

  void norm(const Pass& pass, float* x, const std::vector<float>& weight) const {
    pass.kernels.rms_norm(x, weight.data(), config_.norm_epsilon, x, static_cast<std::uint32_t>(weight.size()));
  }

  // Norms the latent, applies the rotary embedding, and copies the rotated part of each query to its location after the query's latent
  // part.
  void finish_row(const Pass& pass, std::uint32_t row) const {
    const std::uint32_t turning = config_.rotary_dim;
    const std::size_t at = std::size_t{row} * (turning / 2);
    const float* cosines = pass.workspace.angles.cosines + at;
    const float* sines = pass.workspace.angles.sines + at;
    float* queries = pass.workspace.qkv + row * config_.qkv_size();
    float* key = queries + config_.q_size();
    norm(pass, key, weights_.latent.kv_a_norm);
    pass.kernels.rope(config_.rope_style, key + config_.latent.kv_rank, 1, turning, turning, cosines, sines);
    float* q = pass.workspace.latent.q + row * q_width() + config_.latent.key_dim;
    pass.kernels.rope(config_.rope_style, q, config_.num_heads, query_dim(), turning, cosines, sines);
    for (std::uint32_t head = 0; head < config_.num_heads; ++head)
      std::copy_n(q + std::size_t{head} * query_dim(), turning, queries + std::size_t{head} * config_.head_dim + config_.latent.kv_rank);
  }

  // Runs the products of all heads. of(head) returns the product of a head, which uses matrices[head].
  template <class Of>
  void multiply_heads(Pass& pass, const std::vector<PackedMatrix>& matrices, Of of) const {
    const std::uint32_t tiles = (pass.rows + LatentBuffers::kRows - 1) / LatentBuffers::kRows;
    pass.pool.parallel_for(tiles * config_.num_heads, 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
      for (std::uint32_t unit = begin; unit < end; ++unit) {
        const std::uint32_t head = unit % config_.num_heads;
        const std::uint32_t first = unit / config_.num_heads * LatentBuffers::kRows;
        const std::uint32_t count = std::min(LatentBuffers::kRows, pass.rows - first);
        const Heads heads = of(head);
        const ActivationMode mode = heads.columns % kGroupColumns == 0 ? pass.mode : ActivationMode::f32;
        const Activations x = make_activations(mode, heads.x + first * heads.x_stride, heads.x_stride, count, heads.columns,
                                               pass.workspace.latent.codes_of(thread));
        pass.kernels.prepare(x, 0, count);
        pass.kernels.matmul(matrices[head], x, heads.y + first * heads.y_stride, heads.y_stride, 0, matrices[head].num_panels());
      }
    });
  }

  LayerConfig config_;
  const LayerWeights& weights_;
};

}  // namespace

std::unique_ptr<const AttentionSublayer> make_latent_attention(const LayerConfig& config, const LayerWeights& weights) {
  return std::make_unique<LatentAttention>(config, weights);
}

}  // namespace quire
