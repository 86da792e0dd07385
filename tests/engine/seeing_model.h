#pragma once
// Small models that support images, one for each kind of encoder, and images in their prompts.
#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine.h"
#include "runtime/model/tiny_qwen_vl.h"
#include "runtime/model/tiny_vision.h"

namespace quire::test {

inline constexpr TokenId kPictureToken = 299;

// Words have ids 0 to 298, and 256 ends an answer. Each tile of an image has four tokens, with a word between two tiles. In models with
// rows an image is one tile whose height is its number of rows of four tokens.
struct SeeingModel {
  static constexpr std::uint32_t kTileTokens = 4;

  std::string_view name;
  const char* config;
  std::uint32_t side;        // pixels of a tile across
  std::uint32_t most_tiles;  // or rows
  std::uint32_t row = 0;     // pixels from one row of tokens to the next

  [[nodiscard]] PromptImage picture_at(std::uint32_t offset, const std::string& file, std::uint32_t count) const {
    auto tiles = std::make_shared<ImageTiles>();
    tiles->count = row > 0 ? 1 : count;
    tiles->side = side;
    tiles->rows = row * count;
    tiles->rgb = tiny::drawn_bytes(file, tiles->tile_bytes() * tiles->count);
    if (row > 0) return {file, PlaceholderRange(offset, count * kTileTokens), std::move(tiles)};
    std::vector<std::uint8_t> is_embed;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (i > 0) is_embed.push_back(0);
      is_embed.insert(is_embed.end(), kTileTokens, 1);
    }
    return {file, PlaceholderRange(offset, is_embed), std::move(tiles)};
  }
  // Appends the image to the prompt, with fewer tiles if the model does not allow as many.
  void show(EngineRequest& request, const std::string& file, std::uint32_t wanted) const {
    const std::uint32_t count = std::min(wanted, most_tiles);
    request.pictures.push_back(picture_at(static_cast<std::uint32_t>(request.prompt.size()), file, count));
    for (std::uint32_t i = 0; i < count; ++i) {
      if (i > 0 && row == 0) request.prompt.push_back(65);
      request.prompt.insert(request.prompt.end(), kTileTokens, kPictureToken);
    }
  }
  // Writes a folder without a tokenizer.
  void write(const std::string& folder) const {
    if (row > 0) return tiny::write_qwen_folder(folder, boost::json::parse(config), "BF16");
    tiny::write_vision_folder(folder, boost::json::parse(config), "BF16");
  }
};

inline constexpr SeeingModel kSmolVlm{"smolvlm",
                                      R"({"model_type": "smolvlm", "scale_factor": 2, "image_token_id": 299, "eos_token_id": 256,
    "text_config": {"model_type": "llama", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
                    "tie_word_embeddings": false, "eos_token_id": 256},
    "vision_config": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 16,
                      "patch_size": 4}})",
                                      16, 17};
inline constexpr SeeingModel kLlavaModel{"llava", R"({"model_type": "llava", "image_token_index": 299, "eos_token_id": 256,
    "text_config": {"model_type": "qwen2", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
                    "eos_token_id": 256},
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
                      "num_attention_heads": 4, "image_size": 8, "patch_size": 4}})",
                                         8, 1};
inline constexpr SeeingModel kQwenModel{"qwen2_5_vl", R"({"model_type": "qwen2_5_vl", "image_token_id": 299, "eos_token_id": 256,
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "rope_theta": 10000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
    "vision_config": {"depth": 2, "hidden_size": 48, "intermediate_size": 72, "num_heads": 4, "out_hidden_size": 64, "patch_size": 4,
                      "window_size": 16, "fullatt_block_indexes": [1]}})",
                                        32, 17, 8};
inline constexpr SeeingModel kGemmaModel{"gemma3", R"({"model_type": "gemma3", "image_token_index": 299, "eos_token_id": 256,
    "mm_tokens_per_image": 4,
    "text_config": {"model_type": "gemma3_text", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
                    "sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"], "rms_norm_eps": 1e-6,
                    "eos_token_id": 256},
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                      "num_attention_heads": 4, "image_size": 16, "patch_size": 4}})",
                                         16, 1};
inline constexpr std::array kSeeingModels{&kSmolVlm, &kLlavaModel, &kGemmaModel, &kQwenModel};

// Returns the model with the folder's name; null if no model has it.
inline const SeeingModel* seeing_model_of(std::string_view folder) {
  const auto* const found = std::ranges::find_if(kSeeingModels, [&](const SeeingModel* model) { return folder.ends_with(model->name); });
  return found == kSeeingModels.end() ? nullptr : *found;
}

}  // namespace quire::test
