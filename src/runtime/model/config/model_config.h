#pragma once
// Describes a decoder by numbers and switches, for all supported architectures. The config is read from a model's files (config_gguf.cpp,
// config_hf.cpp), checked once, and never changed. Every difference between architectures is a field here: the decoder does not compare
// names of architectures.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "format/json.h"
#include "quire/base/error.h"
#include "quire/base/model_info.h"
#include "runtime/kernel/elementwise.h"
#include "runtime/model/config/tensor_role.h"
#include "runtime/model/config/vision_config.h"

namespace quire {

inline constexpr std::uint32_t kMaxExpertGroups = 64;

// Returns the error for a key of a config whose value is impossible. The remedy is to use the right config.
[[nodiscard]] Error wrong_value(std::string name, std::string problem);

enum class RopeScaling : std::uint8_t { none, linear, llama3, longrope, yarn };

// Activation in the feed-forward part. relu2 and gelu have no gate and only one product (`up` in the file, `gate` in the weights). relu2 is
// the square of the ReLU; gelu is the exact GELU (erf).
enum class GateActivation : std::uint8_t { silu, gelu_tanh, swiglu_limited, relu2, gelu };
constexpr bool has_gate(GateActivation activation) {
  return activation != GateActivation::relu2 && activation != GateActivation::gelu;
}

// RMS norm of q and k before the rotation: of each head, or of all heads together.
enum class QkNorm : std::uint8_t { none, per_head, whole };

// Rotary embedding of q and k: none, with the model's frequencies, or with the frequencies of layers with a window.
enum class Rotation : std::uint8_t { none, model, window };

// How a file stores the experts:
// - separate: one matrix per expert, with the names of Qwen's folders;
// - separate_in_block: like separate, with Mixtral's names;
// - separate_shared: like separate, with DeepSeek's name for the shared expert;
// - stacked: one matrix, with the rows of the experts one after another;
// - stacked_gate_up: like stacked, with each expert's gate rows before its up rows;
// - transposed (gpt-oss): [expert][input][output], where outputs of gate and up alternate.
enum class ExpertTensors : std::uint8_t { separate, separate_in_block, stacked, stacked_gate_up, transposed, separate_shared };

// How a router's scores become weights: a softmax over all scores, or the sigmoid of each score.
enum class ExpertScoring : std::uint8_t { softmax, sigmoid };

// Multi-head latent attention (DeepSeek). The cache has one vector per token for all heads: kv_rank values and the rotated part. The keys
// and values of a head are products of this vector with W_UK and W_UV. W_UK is applied to q instead, and W_UV to the attention output
// (DeepSeek-V2, section 2.1). Attention then has head_dim = kv_rank + rotary_dim and one KV head, whose keys are also its values.
struct LatentShape {
  std::uint32_t kv_rank = 0;    // 0: the model has no latent attention
  std::uint32_t q_rank = 0;     // rank of the latent for queries; 0: queries are products of the residual stream
  std::uint32_t key_dim = 0;    // size of a head's key without the rotated part
  std::uint32_t value_dim = 0;  // size of a head's value

  bool operator==(const LatentShape&) const = default;
};

// How a token changes a state:
// - short_conv: a short convolution over the last inputs, with gates before and after;
// - mamba2: a short convolution and a selective scan;
// - gated_delta: a short convolution and a gated delta rule.
enum class StateKind : std::uint8_t { none, short_conv, mamba2, gated_delta };

// Shape of the layers with a state. All layers with a state have the same shape.
struct StateShape {
  StateKind kind = StateKind::none;
  std::uint32_t conv_taps = 0;  // tokens that the convolution reads, including the current one
  bool conv_bias = false;
  bool input_bias = false, output_bias = false;  // biases of the projections

  // Members for mamba2 and gated_delta.
  std::uint32_t heads = 0;
  std::uint32_t head_dim = 0;  // values per head
  std::uint32_t groups = 0;    // groups of heads that share b and c, or query and key
  std::uint32_t size = 0;      // number of floats in the state of one value; for gated_delta the size of a key
  bool decay_as_log = false;   // the file stores log(-decay)
  bool has_norm = false;       // norm of the scan's output, over norm_groups equal parts
  std::uint32_t norm_groups = 1;
  bool is_gate_after_norm = false;                                    // the gate is applied after the norm
  float input_scale = 1.0F;                                           // factor of the projected input, before its bias
  std::array<float, 5> part_scales = {1.0F, 1.0F, 1.0F, 1.0F, 1.0F};  // factors of the input's parts: gate, values, b, c, steps
  float output_scale = 1.0F;                                          // factor of the output, in layers that also attend

  bool operator==(const StateShape&) const = default;
};

// The shape that all layers of a model share.
struct LayerShape {
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t num_heads = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;  // may differ from hidden_size / num_heads
  float norm_epsilon = 1e-5F;
  float attention_scale = 0.0F;         // 1 / sqrt(head_dim), unless the model has another scale
  float attention_soft_cap = 0.0F;      // scores become cap * tanh(score / cap); 0: no cap
  float attention_output_scale = 1.0F;  // factor of the output of attention, in layers that also have a state
  float gate_scale = 1.0F;              // feed-forward part: factor of the gate before its activation
  float down_scale = 1.0F;              // feed-forward part: factor of the output
  float residual_scale = 1.0F;          // factor of each sublayer's output before the addition to the residual stream
  std::uint32_t rotary_dim = 0;
  RopeStyle rope_style = RopeStyle::half_split;
  LatentShape latent{};

  bool qkv_bias = false;
  bool output_bias = false;  // bias of attention's output projection
  bool mlp_bias = false;
  bool attention_sinks = false;  // each head has a learned score that takes part in the softmax but has no value
  QkNorm qk_norm = QkNorm::none;
  bool late_qk_norm = false;  // qk_norm is applied after the rotation
  GateActivation activation = GateActivation::silu;
  float swiglu_limit = 0.0F;     // limit for swiglu_limited
  bool pre_norms = true;         // norms of the inputs of attention and feed-forward part
  bool post_norms = false;       // norms of both outputs, before the addition to the residual stream
  bool late_norm_name = false;   // the file names the norm before the feed-forward part post-attention norm
  bool fused_qkv = false;        // the file stores q, k and v as one matrix
  bool fused_gate_up = false;    // the file stores gate and up as one matrix
  bool gated_attention = false;  // each head has a gate for its output, next to its query

  // Mixture of experts (num_experts 0: the model has no experts). A router chooses some of num_experts feed-forward parts for each token. A
  // shared expert, if present, is used for every token.
  std::uint32_t num_experts = 0;
  std::uint32_t experts_per_token = 0;
  std::uint32_t expert_size = 0;         // intermediate_size of each expert
  std::uint32_t shared_expert_size = 0;  // size of the shared expert; 0: the model has none
  bool has_shared_expert_gate = true;    // each token has a weight for the shared expert; if false, the weight is 1
  bool fused_shared_gate_up = false;     // the file stores the shared expert's gate and up as one matrix
  bool normalize_experts = false;        // the weights of a token's experts are scaled to sum to 1
  float expert_sum_floor = 0.0F;         // lower bound of the weights' sum for this scaling; with sigmoids, added to the sum
  ExpertScoring expert_scoring = ExpertScoring::softmax;
  bool expert_choice_bias = false;  // the choice of experts, but not their weights, uses score (sigmoid or softmax share) + bias
  // A token uses only experts of its best groups. The score of a group is its best expert's score, or with sigmoids the sum of its two best
  // scores. 0 groups: a token uses any experts.
  std::uint32_t num_expert_groups = 0;
  std::uint32_t groups_per_token = 0;
  float expert_scale = 1.0F;  // factor of the weights
  ExpertTensors expert_tensors = ExpertTensors::separate;
  bool expert_bias = false;  // biases of the router and of all products of the experts

  StateShape state;  // shape of the layers with a state

  bool layer_norms = false;           // LayerNorm with biases, stored after the weights, in place of RMS norm
  bool is_bidirectional = false;      // in an encoder: each row attends to all rows
  std::uint32_t cross_positions = 0;  // encoder output rows that each layer also attends to (cross attention); 0: none

  bool operator==(const LayerShape&) const = default;
  [[nodiscard]] std::uint32_t q_size() const { return num_heads * head_dim; }
  [[nodiscard]] std::uint32_t kv_size() const { return num_kv_heads * head_dim; }
  [[nodiscard]] std::size_t qkv_size() const { return std::size_t{q_size()} + 2 * kv_size(); }
  [[nodiscard]] std::uint32_t group() const { return num_heads / num_kv_heads; }
  // Returns the width of the input of attention's output projection.
  [[nodiscard]] std::uint32_t attended_size() const { return latent.kv_rank > 0 ? num_heads * latent.value_dim : q_size(); }
  // Return widths in a layer with a state: of the projected input, of the part that the convolution reads, and of the output before its
  // projection.
  [[nodiscard]] std::uint32_t state_input_size() const;
  [[nodiscard]] std::uint32_t conv_channels() const;
  [[nodiscard]] std::uint32_t state_output_size() const;
  // Returns the number of floats per row of the workspace buffer for all of these.
  [[nodiscard]] std::size_t state_row_size() const;
  // Returns the shapes of the parts of a state (f32), in the order of their location in a page.
  [[nodiscard]] std::vector<std::vector<std::uint64_t>> state_shapes() const;
  // Returns the number of experts per token, including the shared expert.
  [[nodiscard]] std::uint32_t parts_per_token() const { return experts_per_token + (shared_expert_size > 0 ? 1 : 0); }
};

// The config of one layer, from which its sublayers are created (layer.h).
struct LayerConfig : LayerShape {
  std::uint32_t window = 0;  // tokens that a token attends to, including itself; 0: all tokens before it
  Rotation rotation = Rotation::model;
  LayerMemory memory = LayerMemory::attention;
  bool has_feed_forward = true;
};

// Shape of an encoder, whose output rows for an input (audio features) are the keys and values of cross attention. An encoder has two
// convolutions over time, the second with stride 2, and layers in which each row attends to all rows. Its width is the decoder's.
struct EncoderShape {
  std::uint32_t num_layers = 0;  // 0: the model has none
  std::uint32_t num_heads = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t num_features = 0;   // features per frame of the input
  std::uint32_t num_positions = 0;  // rows of the output; the input has twice as many frames

  static constexpr std::uint32_t kTaps = 3;  // taps of a convolution

  bool operator==(const EncoderShape&) const = default;
};

struct ModelConfig : LayerShape {
  // Name of the architecture in the file, for display (families.h): "llama", "qwen2_moe", "falcon-h1", "smolvlm", ...
  std::string architecture;
  const TensorNames* tensor_names = nullptr;  // tensor names that differ from the usual names (families_*.cpp); null: none
  std::string_view adapter_problem{};         // reason why adapters of this file are refused; empty: adapters are supported
  std::uint32_t num_layers = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t context_length = 0;  // tokens
  float embedding_scale = 1.0F;      // factor of the embeddings before the first layer
  float logit_divisor = 1.0F;
  float logit_soft_cap = 0.0F;  // cap of the logits, as attention_soft_cap
  // By layer: tokens that a token attends to, including itself; 0: all tokens before it. Empty: no layer has a window.
  std::vector<std::uint32_t> sliding_windows;

  double rope_theta = 10000.0;
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1.0;                            // linear, llama3 and yarn
  double rope_low_freq_factor = 1.0;                   // llama3
  double rope_high_freq_factor = 4.0;                  // llama3
  double rope_original_context = 0.0;                  // llama3, longrope and yarn; in tokens
  double rope_beta_fast = 32.0, rope_beta_slow = 1.0;  // yarn: rotations in the original context of unscaled and of scaled pairs
  bool rope_truncates = true;                          // yarn: the bounds between these pairs are rounded to whole pairs
  // longrope: frequencies are divided by the long factors if more than the original context is served, else by the short factors. A GGUF
  // file stores the factors as tensors, and these vectors stay empty.
  std::vector<float> rope_short_factors, rope_long_factors;
  float rope_attention_factor = 1.0F;  // longrope and yarn: factor of cosines and sines
  double window_rope_theta = 0.0;      // base for layers with a window, without scaling; 0: same rotation as in other layers
  // Numbers of pairs of a head that rotate by a row's time, image row and image column, in this order (M-RoPE). All 0: every pair rotates
  // by the row's position.
  std::array<std::uint32_t, 3> rope_sections{};
  // Layers that rotate neither q nor k: the listed layers, or every interval-th layer (0: none).
  std::vector<bool> nope_layers;  // [layer]; empty: no list
  std::uint32_t nope_layer_interval = 0;

  std::vector<LayerMemory> layer_memories;  // [layer]; empty: keys and values in all layers
  std::vector<bool> dense_layers;           // [layer]: layers of an MoE model without experts; empty: none
  // Block numbers in the file by layer, for files that number feed-forward parts as separate blocks (Nemotron-H). Empty: a layer and both
  // its blocks have the same number. kNoBlock: the layer has no feed-forward part.
  std::vector<std::uint32_t> mixer_blocks, feed_forward_blocks;
  static constexpr std::uint32_t kNoBlock = UINT32_MAX;

  EncoderShape encoder;            // cross_positions equals encoder.num_positions
  bool learned_positions = false;  // a learned vector for each position is added to the embedding

  float norm_offset = 0.0F;  // added to the norm weights that the file stores
  bool tied_embeddings = false;
  bool is_tied_if_no_output = false;   // values of tie_word_embeddings differ: tied if the file has no output matrix
  bool has_unread_vision = false;      // the folder also has a vision encoder, which is not read
  std::uint32_t num_draft_layers = 0;  // draft layers at the end of the file; not read
  std::optional<VisionConfig> vision;  // the vision encoder; its tensors have separate names

  [[nodiscard]] bool has_rope_sections() const { return rope_sections != std::array<std::uint32_t, 3>{}; }
  [[nodiscard]] bool layer_rotates(std::uint32_t layer) const {
    if (!nope_layers.empty()) return !nope_layers[layer];
    return nope_layer_interval == 0 || (layer + 1) % nope_layer_interval != 0;
  }
  [[nodiscard]] LayerConfig layer(std::uint32_t index) const;

  // Returns the encoder as the config of a separate model.
  [[nodiscard]] ModelConfig encoder_config() const;

  // Sets num_kv_heads, head_dim and the default scale of attention from `latent` and rotary_dim.
  void set_latent_heads();

  // Returns the radians per position of each pair, including scaling; rotary_dim / 2 entries.
  [[nodiscard]] std::vector<float> rope_frequencies() const;
  // Returns the frequencies of layers with a window; empty if these layers use rope_frequencies().
  [[nodiscard]] std::vector<float> window_rope_frequencies() const;

  bool operator==(const ModelConfig&) const = default;

  // Returns an error if a value is out of range or values contradict each other.
  [[nodiscard]] std::optional<Error> check() const;
};

// Read a config. Errors: `unsupported` (an architecture or option is not implemented), `corrupt` (a key is missing, has the wrong type or
// is out of range, or dimensions contradict each other), naming the key.
Result<ModelConfig> config_from_gguf(const GgufFile& file);
Result<ModelConfig> config_from_hf(const JsonRef& config);
// Reads a "whisper" config for config_from_hf.
Result<ModelConfig> config_from_whisper(const JsonRef& config);

}  // namespace quire
