#pragma once
// Pictures in prompts: what a model that sees some says of them (ModelInfo::pictures), and a picture as its encoder takes it.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/ids.h"
#include "quire/multimodal.h"

namespace quire {

// How a picture becomes squares of the size that the encoder takes, and what stands for them in a prompt. Nothing here is of use where
// `processor` is empty: the model reads text alone.
struct PictureInfo {
  std::string processor;                     // "idefics3" (SmolVLM too)
  std::uint32_t tile_side = 0;               // pixels
  std::uint32_t longest_edge = 0;            // pixels, before a picture is cut
  bool splits = true;                        // into tiles, with the whole picture behind them; else the whole picture is all
  std::uint32_t filter = 1;                  // Pillow's number of the filter that scales
  std::uint32_t tile_tokens = 0;             // of the prompt, each an embedding
  std::uint32_t max_tiles = 0;               // of one picture
  TokenId token = -1;                        // whose places take the embeddings
  std::array<float, 3> mean{}, deviation{};  // of red, green and blue, from 0 to 1
  double rescale = 1.0 / 255.0;

  [[nodiscard]] bool any() const { return !processor.empty(); }
  [[nodiscard]] std::uint32_t max_tokens() const { return max_tiles * tile_tokens; }
};

// Squares of `side` pixels, one behind the other, each rows from the top, 8 bits of red, green and blue.
struct PictureTiles {
  std::uint32_t count = 0, side = 0;
  std::vector<std::uint8_t> rgb;
};

// One picture of a prompt, whose tokens are there (PictureInfo::token where an embedding goes).
struct PromptPicture {
  std::string identifier;     // names its content: equal ones share embeddings and blocks
  PlaceholderRange position;  // as many embeddings as its tiles have tokens
  std::shared_ptr<const PictureTiles> tiles;
};

}  // namespace quire
