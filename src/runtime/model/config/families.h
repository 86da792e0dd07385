#pragma once
// Descriptors of the model families: everything that the readers of config.json (config_hf.cpp) and of GGUF headers (config_gguf.cpp) need
// to know about a family. No other code compares names of architectures. The rows are in families_dense.cpp, families_experts.cpp and
// families_hybrid.cpp, with the readers of single families. To add a family, add a row. All values are constants; any thread may read them.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "format/json.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/config/tensor_role.h"

namespace quire {

// Reads values that only some families have. The shape, rotary embedding and norms in `config` must already be set. An invalid value
// becomes the error of `fields`.
template <class Source>
using FamilyReader = void (*)(const Source& source, ConfigFields<Source>& fields, ModelConfig& config);

// A bias is present if the config's `key` is true; `usual` is the value of a missing key. With an empty `key`, `usual` applies.
struct BiasKey {
  std::string_view key{};
  bool usual = false;
};

// Default shape of a decoder in a model that supports images. The model's config may omit these values, and transformers' class has
// defaults.
struct DefaultShape {
  std::uint32_t num_layers = 0;  // 0: the config must contain all values
  std::uint32_t hidden_size = 0, intermediate_size = 0, num_heads = 0;
  std::uint32_t num_kv_heads = 0;  // 0: as many as heads
  std::uint32_t vocab_size = 0, context_length = 0;
};

// Keys of sliding windows in config.json.
struct WindowKeys {
  bool always = false;       // sliding_window applies even without use_sliding_window
  std::uint32_t usual = 0;   // value of a missing sliding_window; 0: no layer has a window
  bool may_be_null = false;  // null means that no layer has a window, although `usual` is set
  bool has_period = false;   // every sliding_window_pattern-th layer has no window
  std::uint32_t first = 0;   // value of a missing max_window_layers; 0: the family has no such key
};

struct ExpertTraits;
using ExpertReader = void (*)(const ExpertTraits& traits, const JsonRef& json, JsonFields& fields, ModelConfig& config);

// Properties of a mixture of experts. Members from `is_sigmoid` on are also defaults for missing keys of config.json.
struct ExpertTraits {
  ExpertReader read_hf = nullptr;  // null: the family has no experts, or read_states reads them
  ExpertTensors hf_tensors = ExpertTensors::separate;
  bool hf_is_local = false;        // folders: "local" experts of width intermediate_size, with normalised weights
  bool hf_has_width = false;       // folders: moe_intermediate_size is the width, and some layers may be dense
  bool hf_normalizes = false;      // value of a missing norm_topk_prob
  bool has_shared_gate = false;    // the model has a shared expert with a weight for each token
  bool has_bias = false;           // the router and all products have biases
  bool has_router_keys = false;    // DeepSeek's router: keys describe its scores and groups of experts
  bool scores_are_method = false;  // scoring_func may contain the name of the method
  bool is_sigmoid = false;
  float sum_floor = 0.0F;  // as ModelConfig::expert_sum_floor; above 0, a file may contain a bias for the choice of experts
  float scale = 1.0F;
  std::uint32_t groups = 1, groups_per_token = 1, dense_layers = 0;
};

// Properties of the family in Hugging Face folders. Defaults follow transformers' classes.
struct HfTraits {
  std::string_view name{};                                    // model_type; empty: no folders
  std::string_view alias{};                                   // another model_type of the same family
  Result<ModelConfig> (*read_all)(const JsonRef&) = nullptr;  // reads the whole config; no other member is used
  // Keys that are named differently, and values of missing keys.
  std::string_view epsilon_key = "rms_norm_eps", activation_key = "hidden_act", even_share_key{}, width_key{};
  float norm_epsilon = 1e-6F;
  double rope_theta = 10000.0;
  bool tied_embeddings = false;
  bool activation_may_be_null = false;
  std::uint32_t head_dim = 0;  // 0: heads share the width evenly
  bool null_head_dim_is_even = false;
  DefaultShape shape{};
  BiasKey qkv_bias{}, output_bias{}, mlp_bias{};
  std::string_view qk_norm_key{};  // key that turns on ModelFamily::qk_norm; empty: always on
  RopeStyle rope_style = RopeStyle::half_split;
  double rotated_share = 0.0;     // share of a head that rotates if the key is missing; 0: always the whole head
  double longrope_context = 0.0;  // default original context; LongRoPE is then also named "su" and "yarn". 0: no default
  bool has_dynamic_base = false;  // "dynamic" scaling multiplies the base by a power of `alpha`
  WindowKeys windows{};
  bool fused_qkv = false;
  const TensorNames* tensor_names = nullptr;
  FamilyReader<JsonRef> read = nullptr;         // called before the experts are read
  FamilyReader<JsonRef> read_states = nullptr;  // null: no layer has a state; also reads the lists of layers
};

// Properties of the family in GGUF files. Values follow llama.cpp's converter.
struct GgufTraits {
  std::array<std::string_view, 2> names{};       // general.architecture; empty: no GGUF files, or another row describes them
  RopeStyle rope_style = RopeStyle::half_split;  // interleaved if the converter permutes q and k
  bool rope_truncates = true;                    // YaRN, as ModelConfig::rope_truncates
  bool whole_attention_factor = false;           // the file stores YaRN's attention factor; otherwise a multiplier of the default
  bool may_lack_experts = false;                 // a family with experts in folders may have none in a file
  bool normalizes_experts = false;               // value of normalize_experts, unless the family has router keys
  bool lists_dense_layers = false;               // keys give the number of dense first layers and of draft layers at the end
  bool always_qk_norm = false;                   // if false, q and k are normed only if the file has the norms' weights
  std::uint32_t usual_window = 0;                // value of a missing attention.sliding_window
  const TensorNames* tensor_names = nullptr;
  std::string_view adapter_problem{};  // reason why adapters of such files are refused; empty: adapters are supported
  FamilyReader<GgufFile> read = nullptr;
  FamilyReader<GgufFile> read_states = nullptr;
};

struct ModelFamily {
  GateActivation activation = GateActivation::silu;
  QkNorm qk_norm = QkNorm::none;
  bool pre_norms = true, post_norms = false;
  bool late_qk_norm = false, late_norm_name = false, attention_sinks = false;
  bool fused_gate_up = false;
  bool has_latents = false;             // multi-head latent attention
  bool has_blocks = false;              // each block is only attention, a state or a feed-forward part (config_blocks.h)
  bool has_rope_sections = false;       // positions within an image have three components (M-RoPE)
  std::uint32_t nope_interval = 0;      // default interval of layers without rotation; 0: all layers rotate
  std::uint32_t window_period = 0;      // every window_period-th layer has no window; 0: all layers have a window
  bool rotates_windows_only = false;    // layers without a window do not rotate, if some layers have one
  bool windows_ignore_scaling = false;  // layers with a window rotate without scaling
  ExpertTraits experts{};
  HfTraits hf{};
  GgufTraits gguf{};

  // Sets the members of `config` that have the same names as members above, except qk_norm.
  void set_norms(ModelConfig& config) const;
};

// One name that a reader accepts.
struct FamilyName {
  std::string_view name, section;  // section: kind of the model, a heading in lists
  const ModelFamily* family;
};

// Return all names that the readers accept: values of model_type in folders (except those in vision_config.h), and values of
// general.architecture.
[[nodiscard]] std::vector<FamilyName> hf_families();
[[nodiscard]] std::vector<FamilyName> gguf_families();

// Return the family of a name; null if the family is not implemented.
[[nodiscard]] const ModelFamily* find_hf_family(std::string_view model_type);
[[nodiscard]] const ModelFamily* find_gguf_family(std::string_view architecture);

// Returns the remedy for an unknown architecture: a list of the implemented architectures by section.
[[nodiscard]] std::string list_families(const std::vector<FamilyName>& families);

// Return the rows of the three files.
[[nodiscard]] std::span<const ModelFamily> dense_families();
[[nodiscard]] std::span<const ModelFamily> expert_families();
[[nodiscard]] std::span<const ModelFamily> hybrid_families();

inline constexpr BiasKey kAttentionBias{.key = "attention_bias"}, kUsualAttentionBias{.key = "attention_bias", .usual = true};
inline constexpr BiasKey kMlpBias{.key = "mlp_bias"}, kUseBias{.key = "use_bias"}, kAlwaysBias{.usual = true};

// Readers and names that families of several files share.
void read_granite(const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_granite(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);
extern const TensorNames kGraniteNames, kHunyuanNames;

}  // namespace quire
