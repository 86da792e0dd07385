#pragma once
// Describes the vision encoder of a model: a transformer over the patches of an image, in which every patch attends to all patches, and a
// connector that turns its outputs into embeddings of the decoder's width.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/json.h"
#include "quire/base/error.h"

namespace quire {

enum class VisionActivation : std::uint8_t { gelu_tanh, gelu_erf, quick_gelu };

struct VisionConfig {
  std::string_view processor;   // ImageInfo::processor of the family
  std::string_view tower = {};  // prefix of the names of the encoder's tensors
  std::string_view token_key = "image_token_id";
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t num_layers = 0;         // layers that are used
  std::uint32_t num_unused_layers = 0;  // layers of the file after these, which are not used
  std::uint32_t num_heads = 0;
  std::uint32_t image_size = 0;  // pixels per side
  std::uint32_t patch_size = 0;  // pixels per side
  float norm_epsilon = 1e-6F;
  VisionActivation activation = VisionActivation::gelu_tanh;
  bool class_token = false;  // a class token comes before the patches, at the first position
  bool patch_bias = true;
  bool pre_norm = false;          // norm of the patches before the first layer
  bool post_norm = true;          // norm after the last layer
  std::uint32_t num_skipped = 0;  // number of first outputs that do not become embeddings
  std::uint32_t shuffle = 1;      // patches per side of the square that becomes one embedding
  // Gemma 3: the connector is the mean of these patches, an RMS norm, and one matrix, which the file stores transposed.
  bool averages_patches = false;
  float norm_offset = 1.0F;              // added to the weights of this norm, which folders store minus 1
  bool attends_bidirectionally = false;  // in the decoder, embeddings of an image attend to the whole image, not only to earlier tokens
  // Activation between the two matrices of LLaVA's projector; nullopt: the connector is one matrix without a bias.
  std::optional<VisionActivation> projector = std::nullopt;
  bool projector_bias = true;
  std::uint32_t output_size = 0;  // size of an embedding
  std::int32_t token = -1;        // token of the text that embeddings replace
  // Members for encoders of images of any size (Qwen2-VL and Qwen2.5-VL). Their image_size is 0.
  bool has_grid_positions = false;                        // the decoder's positions count rows and columns of embeddings (M-RoPE)
  bool is_gated = false;                                  // RMS norms and gated units (Qwen2.5-VL); else LayerNorm and one product
  std::uint32_t frames = 1;                               // frames of a patch; an image has the same pixels in all frames
  std::uint32_t window = 0;                               // embeddings per side of an attention window; 0: no windows
  std::vector<std::uint32_t> full_attention_layers = {};  // layers without windows

  bool operator==(const VisionConfig&) const = default;

  [[nodiscard]] std::uint32_t side() const { return image_size / patch_size; }
  [[nodiscard]] std::uint32_t num_patches() const { return side() * side(); }
  // Returns the number of rows that attend to each other.
  [[nodiscard]] std::uint32_t num_rows() const { return num_patches() + (class_token ? 1 : 0); }
  [[nodiscard]] std::uint32_t num_embeds() const { return (num_rows() - num_skipped) / (shuffle * shuffle); }
  // Returns the pixels per side of an embedding if the decoder's positions count rows and columns; else 0.
  [[nodiscard]] std::uint32_t grid_side() const { return has_grid_positions ? patch_size * shuffle : 0; }
  [[nodiscard]] std::uint32_t head_dim() const { return hidden_size / num_heads; }
  [[nodiscard]] std::uint32_t patch_values() const { return 3 * frames * patch_size * patch_size; }
  // Returns the size of the connector's input for one embedding.
  [[nodiscard]] std::uint32_t shuffled_size() const { return averages_patches ? hidden_size : hidden_size * shuffle * shuffle; }
};

inline constexpr std::uint32_t kMaxVisionHeadDim = 512;

// A family of models that support images. To add a family, write a reader (vision_readers.h) and add it to vision_families(); add a line to
// load_vision_encoder() if its encoder is another network; write a reader in weights/image_fields.h and add it to read_image_info(); and
// write an `ImageProcessor` (src/media/image_processor.h).
struct VisionFamily {
  std::string_view architecture;               // config.json's model_type
  std::span<const std::string_view> decoders;  // possible model_type values of its text_config; the first is the default
  // Reads the vision encoder; `output_size` is the decoder's hidden_size. Errors: `unsupported`, `corrupt`, naming the key. Null: images
  // are not supported, and only the decoder is served, under its name and for any decoder.
  Result<VisionConfig> (*read)(const JsonRef& config, std::uint32_t output_size);
  // is_vision_optional: vision_config may be missing; then only the decoder is served. is_text_config_optional: text_config may be missing;
  // then the whole config is also the decoder's.
  bool is_vision_optional = false, is_text_config_optional = false;
};

[[nodiscard]] std::span<const VisionFamily> vision_families();
// Returns null if models of this architecture do not support images.
[[nodiscard]] const VisionFamily* find_vision_family(std::string_view architecture);

// Returns the decoder's model_type, or an error if the family does not support it.
Result<std::string> decoder_of(const VisionFamily& family, const JsonRef& text_config);
// Reads the vision encoder of a model with a decoder of this width and vocabulary. Errors: as VisionFamily::read.
Result<VisionConfig> read_vision(const VisionFamily& family, const JsonRef& config, std::uint32_t output_size, std::uint32_t vocab_size);

// Returns an error if a bidirectionally attended image does not fit into the decoder's sliding windows.
[[nodiscard]] std::optional<Error> check_windows(std::span<const std::uint32_t> sliding_windows, const VisionConfig& vision);

}  // namespace quire
