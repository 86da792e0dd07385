#pragma once
// The part of a model that sees: a transformer over the patches of a picture in which every patch attends to all, and what makes embeddings
// of the text's width of its outputs.
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
  std::string_view processor;   // PictureInfo::processor of the family
  std::string_view tower = {};  // how names of the encoder's tensors begin
  std::string_view token_key = "image_token_id";
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t num_layers = 0;         // that pictures go through
  std::uint32_t num_unused_layers = 0;  // of the file, behind these
  std::uint32_t num_heads = 0;
  std::uint32_t image_size = 0;  // pixels of a side
  std::uint32_t patch_size = 0;  // the same
  float norm_epsilon = 1e-6F;
  VisionActivation activation = VisionActivation::gelu_tanh;
  bool class_token = false;  // before the patches, with the first position
  bool patch_bias = true;
  bool pre_norm = false;          // of patches, before the first layer
  bool post_norm = true;          // behind the last one
  std::uint32_t num_skipped = 0;  // first outputs that become no embeddings
  std::uint32_t shuffle = 1;      // patches of so many rows and columns become one embedding
  // Gemma 3's: the mean of those patches, an RMS norm, and one matrix, which the file has turned.
  bool averages = false;
  float norm_offset = 1.0F;    // of that norm's weights, which folders keep less 1
  bool attends_whole = false;  // embeddings of a picture attend to all of it in the decoder, not only to what is before them
  // LLaVA's projector is of two matrices, with this between them; else there is one, without a bias.
  std::optional<VisionActivation> projector = std::nullopt;
  bool projector_bias = true;
  std::uint32_t output_size = 0;  // of an embedding
  std::int32_t token = -1;        // of the text, whose places take embeddings
  // Of encoders that take pictures of any size, whose image_size is 0 (Qwen2-VL and Qwen2.5-VL).
  bool counts_rows = false;                      // the decoder's positions count rows and columns of embeddings (M-RoPE)
  bool is_gated = false;                         // RMS norms and gated units (Qwen2.5-VL), else LayerNorm and one product
  std::uint32_t frames = 1;                      // of a patch, all the same
  std::uint32_t window = 0;                      // embeddings across and down that attend to one another; 0: all
  std::vector<std::uint32_t> whole_layers = {};  // in which all do, nevertheless

  [[nodiscard]] std::uint32_t side() const { return image_size / patch_size; }
  [[nodiscard]] std::uint32_t num_patches() const { return side() * side(); }
  // What attends to each other.
  [[nodiscard]] std::uint32_t num_rows() const { return num_patches() + (class_token ? 1 : 0); }
  [[nodiscard]] std::uint32_t num_embeds() const { return (num_rows() - num_skipped) / (shuffle * shuffle); }
  // Pixels of an embedding whose row and column count in the decoder; 0: they do not.
  [[nodiscard]] std::uint32_t grid_side() const { return counts_rows ? patch_size * shuffle : 0; }
  [[nodiscard]] std::uint32_t head_dim() const { return hidden_size / num_heads; }
  [[nodiscard]] std::uint32_t patch_values() const { return 3 * frames * patch_size * patch_size; }
  // Of what an embedding is projected from.
  [[nodiscard]] std::uint32_t shuffled_size() const { return averages ? hidden_size : hidden_size * shuffle * shuffle; }
};

inline constexpr std::uint32_t kMostVisionHeadDim = 512;

// What sets one family apart where config.json is read. A further one is a reader (vision_readers.h) and its line in
// find_vision_family(), a line in load_vision_encoder() if its encoder is another network, a reader in weights/picture_fields.h and its
// line in read_picture_info(), and a PictureProcessor (src/media/picture_processor.h).
struct VisionFamily {
  std::string_view architecture;               // config.json's model_type
  std::span<const std::string_view> decoders;  // the model_type of its text_config, the usual one first
  // The rest of it; `output_size` is the decoder's hidden_size. Errors: `unsupported`, `corrupt`, naming the key.
  Result<VisionConfig> (*read)(const JsonRef& config, std::uint32_t output_size);
  // There may be no vision_config, and the decoder is served alone; nor a text_config, and the whole is the decoder's, too.
  bool may_be_blind = false, may_be_flat = false;
};

// Null: no model that sees, or none that is served as one.
[[nodiscard]] const VisionFamily* find_vision_family(std::string_view architecture);

// The model_type of the decoder, if the family may have it.
Result<std::string> decoder_of(const VisionFamily& family, const JsonRef& text_config);
// What sees of a model whose decoder has such a width and vocabulary. Errors: as VisionFamily::read.
Result<VisionConfig> read_vision(const VisionFamily& family, const JsonRef& config, std::uint32_t output_size, std::uint32_t vocab_size);

// Whether all of a picture lies in the decoder's windows where it must.
[[nodiscard]] std::optional<Error> check_windows(std::span<const std::uint32_t> sliding_windows, const VisionConfig& vision);

}  // namespace quire
