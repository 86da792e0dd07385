#pragma once
// Pictures in prompts: what a model that sees some says of them (ModelInfo::pictures), and a picture as its encoder takes it.
// Values. Tiles and embeddings are shared and never changed once a request has them, so any thread may read them.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/multimodal.h"

namespace quire {

// How a picture becomes tiles of a size that the encoder takes, and what stands for them in a prompt. Nothing here is of use where
// `processor` is empty: the model reads text alone.
struct PictureInfo {
  std::string processor;                     // "idefics3" (SmolVLM too), "llava", "gemma3", "qwen2_vl" (Qwen2.5-VL too)
  std::uint32_t tile_side = 0;               // pixels; 0: tiles have sizes of their own, in whole embed_sides
  std::uint32_t longest_edge = 0;            // pixels, before a picture is cut; 0: unbounded
  std::uint32_t shortest_edge = 0;           // pixels, before the middle is cut out; 0: the whole picture is scaled to the tile's size
  bool splits = true;                        // into tiles, with the whole picture behind them; else the whole picture is all
  std::uint32_t filter = 1;                  // Pillow's number of the filter that scales
  std::uint32_t tile_tokens = 0;             // of the prompt, each an embedding; of the largest tile where they have their own sizes
  std::uint32_t max_tiles = 0;               // of one picture
  TokenId token = -1;                        // whose places take the embeddings
  std::array<float, 3> mean{}, deviation{};  // of red, green and blue, from 0 to 1
  double rescale = 1.0 / 255.0;
  std::uint32_t embed_side = 0;                  // pixels across and down of what becomes one embedding, where tiles have their own sizes
  std::uint64_t min_pixels = 0, max_pixels = 0;  // of a picture that has its own size
  bool counts_rows = false;                      // the decoder counts rows and columns of embeddings, which stand side by side
  bool attends_whole = false;                    // in the decoder, its embeddings attend to all of it: its prompt is never cut within

  std::uint32_t embed_size = 0;  // numbers of an embedding
  std::string place = {};        // stands for one in a prompt's text, where it is not the token that the family has for it

  [[nodiscard]] bool any() const { return !processor.empty(); }
  [[nodiscard]] std::uint32_t max_tokens() const { return max_tiles * tile_tokens; }
  // Of a tile of that size; 0: the encoder takes none.
  [[nodiscard]] std::uint32_t tokens_of(std::uint32_t width, std::uint32_t height) const {
    if (tile_side > 0) return width == tile_side && height == tile_side ? tile_tokens : 0;
    if (embed_side == 0 || width % embed_side != 0 || height % embed_side != 0) return 0;
    const std::uint64_t tokens = std::uint64_t{width / embed_side} * (height / embed_side);
    return tokens <= tile_tokens ? static_cast<std::uint32_t>(tokens) : 0;
  }
};

// Equal rectangles, one behind the other, each rows from the top, 8 bits of red, green and blue.
struct PictureTiles {
  std::uint32_t count = 0, side = 0;  // pixels across
  std::vector<std::uint8_t> rgb;
  std::uint32_t rows = 0;  // pixels down; 0: squares

  [[nodiscard]] std::uint32_t height() const { return rows == 0 ? side : rows; }
  [[nodiscard]] std::size_t tile_bytes() const { return std::size_t{3} * side * height(); }
};

// What an encoder of the model has made of a picture elsewhere.
struct PictureEmbeds {
  std::vector<float> values;            // [embedding][PictureInfo::embed_size], finite
  std::uint32_t rows = 0, columns = 0;  // of embeddings, where the decoder counts them (PictureInfo::counts_rows)
};

// One picture of a prompt, whose tokens are there (PictureInfo::token where an embedding goes).
struct PromptPicture {
  std::string identifier;     // names its content: equal ones share embeddings and blocks
  PlaceholderRange position;  // as many embeddings as its tiles have tokens
  std::shared_ptr<const PictureTiles> tiles;
  std::shared_ptr<const PictureEmbeds> embeds{};  // in place of tiles: as many as the position takes, and nothing is encoded
};

}  // namespace quire
