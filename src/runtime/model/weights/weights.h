#pragma once
// The weights of a decoder as the kernels read them.
// Loaded once, on one thread with others that pack, and never changed: passes read them on all threads of the pool. Sizes are those of the
// model's config, which was checked before.
#include <array>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "quire/base/error.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/kept/expert_store.h"
#include "runtime/model/weights/model_file.h"
#include "runtime/model/weights/weight_packing.h"

namespace quire {

// A product and its bias (empty: none).
struct Linear {
  PackedMatrix matrix;
  std::vector<float> bias;

  [[nodiscard]] std::uint64_t bytes() const { return matrix.bytes() + bias.size() * sizeof(float); }
};

struct ExpertWeights {
  PackedMatrix gate, up, down;
  std::vector<float> gate_bias, up_bias, down_bias;
};

// Of latent attention (model_config.h). k_up [head]: from a head's query to latents, [kv_rank][key_dim]; v_up [head]: from latents to its
// values, [value_dim][kv_rank].
struct LatentWeights {
  PackedMatrix q_a, kv_a;  // q_a: no rows where queries are made from the stream (LayerWeights::q); else they are from what it gives
  std::vector<float> q_a_norm, kv_a_norm;
  std::vector<PackedMatrix> k_up, v_up;
};

// Of attention to what an encoder has made, whose rows keys and values are made of.
struct CrossWeights {
  std::vector<float> norm;
  Linear q, k, v, output;
};

// Norms, biases and sinks that the model has not are empty. Those with biases (LayerShape::layer_norms) have them behind the weights.
// What a file keeps as one matrix (fused q, k and v, or gate and up) is packed as the parts.
struct LayerWeights {
  std::vector<float> attn_norm;
  Linear q, k, v, attn_output;
  std::vector<float> q_norm, k_norm;  // of one head, or of all together
  std::vector<float> sinks;           // [num_heads]
  LatentWeights latent;
  std::vector<float> attn_post_norm;
  std::vector<float> ffn_norm;
  Linear gate, up, down;  // no rows in a layer with experts
  PackedMatrix router;    // [num_experts][hidden_size]; no rows: no experts
  std::vector<float> router_bias;
  std::vector<float> choice_bias;      // [num_experts]
  PackedMatrix shared_weight;          // one row, where there is a shared expert whose part is weighed
  std::vector<ExpertWeights> experts;  // the shared one, if there is one, behind the others
  std::uint32_t num_routed = 0;        // of them
  std::vector<float> ffn_post_norm;
  // Of a layer with a state.
  Linear state_input, state_output;
  std::vector<float> conv_weights;  // [taps][channels], of the oldest input first
  std::vector<float> conv_bias;
  std::vector<float> step_bias, state_decay, state_skip;  // [head]; what the step is multiplied with, below 0
  std::vector<float> state_norm;
  PackedMatrix state_rates;  // [2 * heads][hidden_size], of a gated delta rule
  PackedMatrix state_gate;   // of one whose file has it apart, and state_input in the convolution's order; else no rows
  CrossWeights cross;

  [[nodiscard]] const std::vector<float>& norm_behind_attention() const { return cross.norm.empty() ? ffn_norm : cross.norm; }
};

// The convolutions have the inputs of their taps one behind the other: [hidden_size][taps][inputs].
struct EncoderWeights {
  Linear first_conv, second_conv;
  std::vector<float> positions;  // [num_positions][hidden_size]
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;
};

// Experts whose matrices have no storage: where they are kept.
struct StreamedExperts {
  PackedFile file;
  std::vector<std::vector<StoredExpert>> experts;  // [layer][expert], as ExpertStore has them
  std::uint64_t bytes = 0;                         // of memory for them
  PackAgain pack_again;
};

struct DecoderWeights {
  PackedMatrix embedding;
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;
  PackedMatrix output;           // no rows: tied to the embedding
  std::vector<float> positions;  // [context_length][hidden_size], where positions are learned
  EncoderWeights encoder;
  std::vector<float> rope_factors;          // divide the frequencies; empty: none
  std::vector<float> rope_long_factors;     // in their place where more than the original context is served; empty: none
  std::optional<StreamedExperts> streamed;  // whose matrices are those of `layers`; moving the weights leaves them where they are
  std::vector<std::string> notes;           // on keeping packed weights

  [[nodiscard]] const PackedMatrix& lm_head() const { return output.rows == 0 ? embedding : output; }
  // Without those that are streamed.
  [[nodiscard]] std::uint64_t bytes() const;
  // Of memory for those.
  [[nodiscard]] std::uint64_t streamed_bytes() const;
  // Some products want their inputs in another order (PackedMatrix::input_order).
  [[nodiscard]] bool are_reordered() const;
};

// Packs every tensor, several at a time, and gives each source page back once read. Errors: `corrupt` (a tensor is missing or of the
// wrong shape), `unsupported` (its type, or a tensor that no part of the decoder uses: leaving it out would change the answers).
Result<DecoderWeights> load_weights(const ModelFile& file, ThreadPool& pool, const PackingOptions& options = {});

}  // namespace quire
