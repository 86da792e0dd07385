#pragma once
// The weights of a decoder, in the kernels' formats. Loaded once, by a thread that packs them on the pool, and never changed: passes read
// them on all threads of the pool. Sizes follow from the model's config, which was already checked.
#include <array>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "quire/base/error.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/packed/expert_store.h"
#include "runtime/model/weights/model_file.h"
#include "runtime/model/weights/weight_packing.h"

namespace quire {

// A matrix and its bias (empty: no bias).
struct Linear {
  PackedMatrix matrix;
  std::vector<float> bias;

  [[nodiscard]] std::uint64_t bytes() const { return matrix.bytes() + bias.size() * sizeof(float); }
};

struct ExpertWeights {
  PackedMatrix gate, up, down;
  std::vector<float> gate_bias, up_bias, down_bias;
};

// Weights of latent attention (model_config.h). k_up[head], [kv_rank][key_dim], maps the head's query to latents. v_up[head],
// [value_dim][kv_rank], maps latents to the head's values.
struct LatentWeights {
  // If q_a has no rows, queries are products of the stream (LayerWeights::q); else of the output of q_a.
  PackedMatrix q_a, kv_a;
  std::vector<float> q_a_norm, kv_a_norm;
  std::vector<PackedMatrix> k_up, v_up;
};

// Weights of cross attention. Keys and values are products of an encoder's output rows.
struct CrossWeights {
  std::vector<float> norm;
  Linear q, k, v, output;
};

// Norms, biases and sinks that the model does not have are empty. In norms with biases (LayerShape::layer_norms), the biases follow the
// weights. Matrices that a file stores as one (fused q, k and v, or gate and up) are packed separately.
struct LayerWeights {
  std::vector<float> attn_norm;
  Linear q, k, v, attn_output;
  std::vector<float> q_norm, k_norm;  // as wide as one head, or as all heads together
  std::vector<float> sinks;           // [num_heads]
  LatentWeights latent;
  std::vector<float> attn_post_norm;
  std::vector<float> ffn_norm;
  Linear gate, up, down;  // no rows in a layer with experts
  PackedMatrix router;    // [num_experts][hidden_size]; no rows in a layer without experts
  std::vector<float> router_bias;
  std::vector<float> choice_bias;      // [num_experts]
  PackedMatrix shared_weight;          // one row, if there is a shared expert with a weight per token
  std::vector<ExpertWeights> experts;  // with the shared expert last, if there is one
  std::uint32_t num_routed = 0;        // number of experts without the shared expert
  std::vector<float> ffn_post_norm;
  // Weights of a layer with a state.
  Linear state_input, state_output;
  std::vector<float> conv_weights;  // [taps][channels], oldest input first
  std::vector<float> conv_bias;
  std::vector<float> step_bias, state_decay, state_skip;  // [head]; state_decay is the factor of the step, below 0
  std::vector<float> state_norm;
  PackedMatrix state_rates;  // [2 * heads][hidden_size], for a gated delta rule
  // Gates of a gated delta rule, if the file stores them separately; then state_input is in the convolution's order. Otherwise the matrix
  // has no rows.
  PackedMatrix state_gate;
  CrossWeights cross;

  [[nodiscard]] const std::vector<float>& norm_after_attention() const { return cross.norm.empty() ? ffn_norm : cross.norm; }
};

// Weights of an encoder. Convolutions are [hidden_size][taps][inputs]: the inputs of a tap are adjacent.
struct EncoderWeights {
  Linear first_conv, second_conv;
  std::vector<float> positions;  // [num_positions][hidden_size]
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;
};

// Experts whose matrices have no storage, and the file that contains these matrices.
struct StreamedExperts {
  PackedFile file;
  std::vector<std::vector<StoredExpert>> experts;  // [layer][expert], as in ExpertStore
  std::uint64_t bytes = 0;                         // memory for the experts
  RepackFn repack;
};

struct DecoderWeights {
  PackedMatrix embedding;
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;
  PackedMatrix output;           // no rows: tied to the embedding
  std::vector<float> positions;  // [context_length][hidden_size], if positions are learned
  EncoderWeights encoder;
  std::vector<float> rope_factors;          // divisors of the frequencies; empty: no factors
  std::vector<float> rope_long_factors;     // used instead of rope_factors if more than the original context is served
  std::optional<StreamedExperts> streamed;  // refers to matrices in `layers`, whose addresses stay the same when the weights are moved
  std::vector<std::string> notes;           // about the cache of packed weights

  [[nodiscard]] const PackedMatrix& lm_head() const { return output.rows == 0 ? embedding : output; }
  // Returns the size in bytes without the streamed experts.
  [[nodiscard]] std::uint64_t bytes() const;
  // Returns the size in bytes of the memory for the streamed experts.
  [[nodiscard]] std::uint64_t streamed_bytes() const;
  // Returns whether some products need reordered inputs (PackedMatrix::input_order).
  [[nodiscard]] bool are_reordered() const;
};

// Packs every tensor, several at a time, and releases each source page once it is read. Errors: `corrupt` (a tensor is missing or has the
// wrong shape), `unsupported` (a tensor's type, or a tensor that the decoder does not use: ignoring it would change outputs).
Result<DecoderWeights> load_weights(const ModelFile& file, ThreadPool& pool, const PackingOptions& options = {});

}  // namespace quire
