#pragma once
// Describes the vision encoder of a model: a transformer over the patches of an image, in which every patch attends to all patches, and a
// connector from its outputs to embeddings of the text's width.
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
  std::uint32_t num_layers = 0;         // layers that images go through
  std::uint32_t num_unused_layers = 0;  // further layers of the file, after these
  std::uint32_t num_heads = 0;
  std::uint32_t image_size = 0;  // pixels per side
  std::uint32_t patch_size = 0;  // pixels per side
  float norm_epsilon = 1e-6F;
  VisionActivation activation = VisionActivation::gelu_tanh;
  bool class_token = false;  // a class token comes before the patches, at the first position
  bool patch_bias = true;
  bool pre_norm = false;          // norm of the patches before the first layer
  bool post_norm = true;          // norm after the last layer
  std::uint32_t num_skipped = 0;  // first outputs that do not become embeddings
  std::uint32_t shuffle = 1;      // patches per side of the square that becomes one embedding
  // Gemma 3: the connector is the mean of those patches, an RMS norm, and one matrix, which the file stores transposed.
  bool averages_patches = false;
  float norm_offset = 1.0F;              // added to the weights of that norm, which folders store less 1
  bool attends_bidirectionally = false;  // in the decoder, embeddings of an image attend to the whole image, not only to earlier tokens
  // LLaVA's projector has two matrices with this activation between them. Without it there is one matrix without a bias.
  std::optional<VisionActivation> projector = std::nullopt;
  bool projector_bias = true;
  std::uint32_t output_size = 0;  // size of an embedding
  std::int32_t token = -1;        // token of the text that embeddings replace
  // Members for encoders of images of any size (Qwen2-VL and Qwen2.5-VL). Their image_size is 0.
  bool has_grid_positions = false;  // the decoder's positions count rows and columns of embeddings (M-RoPE)
  bool is_gated = false;            // RMS norms and gated units (Qwen2.5-VL); else LayerNorm and one product
  std::uint32_t frames = 1;         // frames of a patch; an image repeats itself in all of them
  std::uint32_t window = 0;         // embeddings per side of a window, within which patches attend to one another; 0: no windows
  std::vector<std::uint32_t> full_attention_layers = {};  // layers that ignore the windows

  bool operator==(const VisionConfig&) const = default;

  [[nodiscard]] std::uint32_t side() const { return image_size / patch_size; }
  [[nodiscard]] std::uint32_t num_patches() const { return side() * side(); }
  // Number of rows that attend to one another.
  [[nodiscard]] std::uint32_t num_rows() const { return num_patches() + (class_token ? 1 : 0); }
  [[nodiscard]] std::uint32_t num_embeds() const { return (num_rows() - num_skipped) / (shuffle * shuffle); }
  // Pixels per side of an embedding, if its row and column count in the decoder; 0: they do not count.
  [[nodiscard]] std::uint32_t grid_side() const { return has_grid_positions ? patch_size * shuffle : 0; }
  [[nodiscard]] std::uint32_t head_dim() const { return hidden_size / num_heads; }
  [[nodiscard]] std::uint32_t patch_values() const { return 3 * frames * patch_size * patch_size; }
  // Size of the connector's input for one embedding.
  [[nodiscard]] std::uint32_t shuffled_size() const { return averages_patches ? hidden_size : hidden_size * shuffle * shuffle; }
};

inline constexpr std::uint32_t kMaxVisionHeadDim = 512;

// A family of models that support images. A further family needs: a reader (vision_readers.h) and its line in vision_families(); a line
// in load_vision_encoder() if its encoder is another network; a reader in weights/image_fields.h and its line in read_image_info(); and
// an `ImageProcessor` (src/media/image_processor.h).
struct VisionFamily {
  std::string_view architecture;               // config.json's model_type
  std::span<const std::string_view> decoders;  // possible model_type values of its text_config; the first is the default
  // Null: images are not supported, and the decoder is served alone under its own name, whatever it is. Else it reads the vision encoder;
  // `output_size` is the decoder's hidden_size. Errors: `unsupported`, `corrupt`, naming the key.
  Result<VisionConfig> (*read)(const JsonRef& config, std::uint32_t output_size);
  // is_vision_optional: the vision_config may be missing, and then the decoder is served alone. is_text_config_optional: the text_config
  // may be missing, and then the whole config is also the decoder's.
  bool is_vision_optional = false, is_text_config_optional = false;
};

[[nodiscard]] std::span<const VisionFamily> vision_families();
// Returns null if a model of this architecture does not take images.
[[nodiscard]] const VisionFamily* find_vision_family(std::string_view architecture);

// Returns the decoder's model_type, or an error if the family does not support it.
Result<std::string> decoder_of(const VisionFamily& family, const JsonRef& text_config);
// Reads the vision encoder of a model with a decoder of this width and vocabulary. Errors: as VisionFamily::read.
Result<VisionConfig> read_vision(const VisionFamily& family, const JsonRef& config, std::uint32_t output_size, std::uint32_t vocab_size);

// Returns an error if an image that must be seen as a whole does not fit into the decoder's windows.
[[nodiscard]] std::optional<Error> check_windows(std::span<const std::uint32_t> sliding_windows, const VisionConfig& vision);

}  // namespace quire
