#pragma once
// A decoder described by numbers and switches: what the files of every supported architecture boil down to.
// Read from a model's files (config_gguf.cpp, config_hf.cpp), checked once, and never changed. Everything that differs between
// architectures is a field here: the decoder asks for no name.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "format/json.h"
#include "quire/base/error.h"
#include "quire/base/model_info.h"
#include "runtime/kernel/elementwise.h"
#include "runtime/model/config/vision_config.h"

namespace quire {

inline constexpr std::uint32_t kMaxExpertGroups = 64;

enum class RopeScaling : std::uint8_t { none, linear, llama3, longrope, yarn };

// Of the gate in the feed-forward part. relu2 and gelu: there is none, and one product (the file's up, the gate of the weights); what is
// above 0 of it is squared, or it goes through the GELU with erf.
enum class GateActivation : std::uint8_t { silu, gelu_tanh, swiglu_limited, relu2, gelu };
constexpr bool has_gate(GateActivation activation) {
  return activation != GateActivation::relu2 && activation != GateActivation::gelu;
}

// RMS norm of q and k before the rotation: of each head, or of all heads together.
enum class QkNorm : std::uint8_t { none, per_head, whole };

// How q and k turn with the position: not at all, by the model's frequencies, or by those of layers with a window.
enum class Rotation : std::uint8_t { none, model, window };

// How a file keeps the experts: one matrix for each (their names as in Qwen's folders, or as in Mixtral's), one for all of them below one
// another, or that with each one's gate above its up; or (gpt-oss) turned: [expert][input][output], outputs of gate and up in turns.
// apart_shared: as Qwen's, with another name for the shared one (DeepSeek).
enum class ExpertTensors : std::uint8_t { apart, apart_in_block, stacked, stacked_gate_up, turned, apart_shared };

// How a router's scores become shares: a softmax of them, or the sigmoid of each.
enum class ExpertScoring : std::uint8_t { softmax, sigmoid };

// Multi-head latent attention (DeepSeek): what a token keeps is one vector for all heads, kv_rank values and those that turn, and a head's
// keys and values are products of it. Those products are taken on the queries' side, so that attention is one of head_dim = kv_rank +
// rotary_dim with one KV head, whose values are its keys (W_UK into q, W_UV behind attention; DeepSeek-V2, section 2.1).
struct LatentShape {
  std::uint32_t kv_rank = 0;    // 0: attention is of another kind
  std::uint32_t q_rank = 0;     // of what queries are made from; 0: from the stream itself
  std::uint32_t key_dim = 0;    // of a head's key, without what turns
  std::uint32_t value_dim = 0;  // of a head's value
};

// What files call the tensors, where the usual names are not theirs.
enum class TensorNames : std::uint8_t { usual, lfm2, granite_hybrid, bamba, qwen3_next, glm4, ernie, hunyuan, nemotron_h };

// How a state changes with a token: by a short convolution over the last inputs, gated before and behind; or by one with a selective scan
// or a gated delta rule behind it.
enum class StateKind : std::uint8_t { none, short_conv, mamba2, gated_delta };

// Of the layers with a state, which are alike.
struct StateShape {
  StateKind kind = StateKind::none;
  std::uint32_t conv_taps = 0;  // tokens that the convolution sees, the current one among them
  bool conv_bias = false;
  bool input_bias = false, output_bias = false;  // of the projections

  // Of mamba2 and gated_delta.
  std::uint32_t heads = 0;
  std::uint32_t head_dim = 0;  // values of a head
  std::uint32_t groups = 0;    // of heads that share b and c, or query and key
  std::uint32_t size = 0;      // numbers of a value's state; of a key
  bool decay_as_log = false;   // the file keeps log(-decay)
  bool has_norm = false;       // of what comes out of the scan: as one, or cut into norm_groups
  std::uint32_t norm_groups = 1;
  bool gates_normed = false;                                          // the gate comes behind the norm
  float input_scale = 1.0F;                                           // of the projected input, before its bias
  std::array<float, 5> part_scales = {1.0F, 1.0F, 1.0F, 1.0F, 1.0F};  // of its parts: gate, values, b, c, steps
  float output_scale = 1.0F;                                          // where attention is beside it
};

// What all layers of a model have in common.
struct LayerShape {
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t num_heads = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;  // need not be hidden_size / num_heads
  float norm_epsilon = 1e-5F;
  float attention_scale = 0.0F;         // 1 / sqrt(head_dim), unless the model brings its own
  float attention_soft_cap = 0.0F;      // of the scores: cap * tanh(score / cap); 0: none
  float attention_output_scale = 1.0F;  // where a state is beside it
  float gate_scale = 1.0F;              // in the feed-forward part: of the gate before its activation,
  float down_scale = 1.0F;              // and of what comes out
  float residual_scale = 1.0F;          // of what each half of a layer adds to the stream
  std::uint32_t rotary_dim = 0;
  RopeStyle rope_style = RopeStyle::half_split;
  LatentShape latent{};

  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool attention_sinks = false;  // a score of each head that takes a share of the weights and has no value
  QkNorm qk_norm = QkNorm::none;
  bool late_qk_norm = false;  // behind the rotation instead
  GateActivation activation = GateActivation::silu;
  float swiglu_limit = 0.0F;     // of swiglu_limited
  bool pre_norms = true;         // of what goes into attention and feed-forward
  bool post_norms = false;       // of what comes out of them, before it is added
  bool late_norm_name = false;   // the file names the norm before feed-forward for the attention that it follows
  bool fused_qkv = false;        // the file keeps q, k and v as one matrix,
  bool fused_gate_up = false;    // gate and up as one
  bool gated_attention = false;  // each head's query comes with a gate of what the head gives

  // A mixture of experts (0: none): of num_experts feed-forward parts each token goes through those that a router likes best, and through
  // the shared one where there is one.
  std::uint32_t num_experts = 0;
  std::uint32_t experts_per_token = 0;
  std::uint32_t expert_size = 0;         // as intermediate_size, of each
  std::uint32_t shared_expert_size = 0;  // of the one that all tokens go through; 0: there is none
  bool weighs_shared_expert = true;      // each token by a weight of its own; else it counts whole
  bool fused_shared_gate_up = false;     // the file keeps its gate and up as one matrix
  bool normalize_experts = false;        // the weights of a token's experts are made to sum to 1,
  float expert_sum_floor = 0.0F;         // unless their own sum is less than this; of sigmoids it is added to the sum
  ExpertScoring expert_scoring = ExpertScoring::softmax;
  bool expert_choice_bias = false;  // added to their sigmoids, or to the softmax, where experts are chosen, and not to their weights
  // A token chooses among the experts of so many groups, those with the best expert, or (sigmoid) the best pair; 0: among all.
  std::uint32_t num_expert_groups = 0;
  std::uint32_t groups_per_token = 0;
  float expert_scale = 1.0F;  // of the weights
  ExpertTensors expert_tensors = ExpertTensors::apart;
  bool expert_bias = false;  // of the router and of all experts' products

  StateShape state;  // of the layers that have one

  bool layer_norms = false;           // norms take the mean away and have biases, which lie behind the weights
  bool whole_attention = false;       // of an encoder: each row sees all
  std::uint32_t cross_positions = 0;  // that an encoder has made of the request's input, and each layer attends to as well; 0: none

  [[nodiscard]] std::uint32_t q_size() const { return num_heads * head_dim; }
  [[nodiscard]] std::uint32_t kv_size() const { return num_kv_heads * head_dim; }
  [[nodiscard]] std::size_t qkv_size() const { return std::size_t{q_size()} + 2 * kv_size(); }
  [[nodiscard]] std::uint32_t group() const { return num_heads / num_kv_heads; }
  // Of what the attention's output projection reads.
  [[nodiscard]] std::uint32_t attended_size() const { return latent.kv_rank > 0 ? num_heads * latent.value_dim : q_size(); }
  // Of a layer with a state: what its input is projected to, what the convolution sees of that, and what is projected back.
  [[nodiscard]] std::uint32_t state_input_size() const;
  [[nodiscard]] std::uint32_t conv_channels() const;
  [[nodiscard]] std::uint32_t state_output_size() const;
  // Floats of a row of the workspace that holds all of these.
  [[nodiscard]] std::size_t state_row_size() const;
  // Of the parts of a state, f32, in the order in which they lie in a page.
  [[nodiscard]] std::vector<std::vector<std::uint64_t>> state_shapes() const;
  // Feed-forward parts that a token goes through.
  [[nodiscard]] std::uint32_t parts_per_token() const { return experts_per_token + (shared_expert_size > 0 ? 1 : 0); }
};

// One layer: what its objects (layer.h) are made from.
struct LayerConfig : LayerShape {
  std::uint32_t window = 0;  // tokens that a token attends to, itself among them; 0: all before it
  Rotation rotation = Rotation::model;
  LayerMemory memory = LayerMemory::attention;
  bool has_feed_forward = true;
};

// What makes rows of an input (the features of a sound) that a decoder attends to: two convolutions over time, of which the second takes
// every other place, and layers in which each row attends to all. It is as wide as the decoder.
struct EncoderShape {
  std::uint32_t num_layers = 0;  // 0: the model has none
  std::uint32_t num_heads = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t num_features = 0;   // of a place of the input
  std::uint32_t num_positions = 0;  // of what comes out; the input has twice as many places

  static constexpr std::uint32_t kTaps = 3;  // of a convolution
};

struct ModelConfig : LayerShape {
  // "llama", "mistral", "qwen2", "qwen3", "phi3", "granite", "smollm3", "olmo2", "gemma2", ...; SmolLM2 is a llama. Or, with
  // experts, "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "gpt_oss", "deepseek_v2" or "deepseek_v3". Or, with states,
  // "lfm2", "granitemoehybrid", "bamba", "falcon_h1" or "qwen3_next" (in GGUF files "granitehybrid" and "falcon-h1"). Or, with pictures,
  // "idefics3" or "smolvlm", whose decoders are llamas.
  std::string architecture;
  TensorNames tensor_names = TensorNames::usual;
  std::uint32_t num_layers = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t context_length = 0;  // tokens
  float embedding_scale = 1.0F;      // of the embeddings on their way into the first layer
  float logit_divisor = 1.0F;
  float logit_soft_cap = 0.0F;  // of the logits, as attention_soft_cap
  // By layer: tokens that a token attends to, itself among them; 0: all before it. Empty: no layer has a window.
  std::vector<std::uint32_t> sliding_windows;

  double rope_theta = 10000.0;
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1.0;                            // linear, llama3 and yarn
  double rope_low_freq_factor = 1.0;                   // llama3
  double rope_high_freq_factor = 4.0;                  // llama3
  double rope_original_context = 0.0;                  // llama3, longrope and yarn, tokens
  double rope_beta_fast = 32.0, rope_beta_slow = 1.0;  // yarn: turns within the original context, of pairs that are kept and stretched
  bool rope_whole_pairs = true;                        // yarn: which pairs these are is rounded
  // longrope: frequencies are divided by the long factors where more than the original context is served, by the short ones elsewhere.
  // A GGUF file keeps the factors as tensors, and these stay empty.
  std::vector<float> rope_short_factors, rope_long_factors;
  float rope_attention_factor = 1.0F;  // longrope and yarn: of cosines and sines
  double window_rope_theta = 0.0;      // of layers with a window, unscaled; 0: they rotate as all others
  // Pairs of a head that turn with a row's time, with its row and with its column in a picture, in this order (M-RoPE); 0: all turn with
  // the one position.
  std::array<std::uint32_t, 3> rope_sections{};
  // Layers that rotate neither q nor k: those listed, or each interval-th (0: none).
  std::vector<bool> still_layers;  // [layer]; empty: no list
  std::uint32_t still_layer_interval = 0;

  std::vector<LayerMemory> layer_memories;  // [layer]; empty: keys and values in all
  std::vector<bool> dense_layers;           // [layer]: those of a mixture that have no experts; empty: none
  // Where a file counts what looks back and the feed-forward part as blocks of their own (Nemotron-H), which they are, by layer; empty:
  // both are the layer's number. kNoBlock: it has no feed-forward part.
  std::vector<std::uint32_t> look_back_blocks, feed_forward_blocks;
  static constexpr std::uint32_t kNoBlock = UINT32_MAX;

  EncoderShape encoder;            // cross_positions are its num_positions
  bool learned_positions = false;  // a vector of each is added to the embedding

  float norm_offset = 0.0F;  // added to the norms as the file keeps them
  bool tied_embeddings = false;
  bool takes_images = false;           // the folder has more than what reads and writes text, which is not read
  std::uint32_t num_draft_layers = 0;  // behind the others in the file, for drafts of other engines: not read
  std::optional<VisionConfig> vision;  // what sees; its tensors have names of their own

  [[nodiscard]] bool has_rope_sections() const { return rope_sections != std::array<std::uint32_t, 3>{}; }
  [[nodiscard]] bool layer_rotates(std::uint32_t layer) const {
    if (!still_layers.empty()) return !still_layers[layer];
    return still_layer_interval == 0 || (layer + 1) % still_layer_interval != 0;
  }
  [[nodiscard]] LayerConfig layer(std::uint32_t index) const;

  // The encoder, as a model of its own.
  [[nodiscard]] ModelConfig encoder_config() const;

  // The heads that attention sees follow from `latent` and rotary_dim; with the usual scale.
  void set_latent_heads();

  // Radians per position of each pair, scaling applied; rotary_dim / 2 entries.
  [[nodiscard]] std::vector<float> rope_frequencies() const;
  // Those of layers with a window; empty where they are no others.
  [[nodiscard]] std::vector<float> window_rope_frequencies() const;

  // What is out of range or does not fit together, if anything.
  [[nodiscard]] std::optional<Error> check() const;
};

// Errors of both: `unsupported` (architecture or option without an implementation here), `corrupt` (a key missing, of the wrong type or
// range, or dimensions that do not fit one another), naming the key.
Result<ModelConfig> config_from_gguf(const GgufFile& file);
Result<ModelConfig> config_from_hf(const JsonRef& config);
// The part of config_from_hf that reads "whisper".
Result<ModelConfig> config_of_whisper(const JsonRef& config);

}  // namespace quire
