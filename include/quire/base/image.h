#pragma once
// Images in prompts: the image properties of a model (`ModelInfo::pictures`), and an image as the encoder takes it. Values. Tiles and
// embeddings are shared and never changed once a request has them, so any thread may read them.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/multimodal.h"

namespace quire {

// How an image becomes tiles of a size that the encoder takes, and what represents them in a prompt. If `processor` is empty, the model
// supports text only, and the other fields have no meaning.
struct ImageInfo {
  std::string processor;                     // "idefics3" (SmolVLM too), "llava", "gemma3", "qwen2_vl" (Qwen2.5-VL too)
  std::uint32_t tile_side = 0;               // pixels; 0: tiles have different sizes, in multiples of embed_side
  std::uint32_t longest_edge = 0;            // pixels, before an image is split; 0: unbounded
  std::uint32_t shortest_edge = 0;           // pixels, before the centre is cropped; 0: the whole image is scaled to the tile's size
  bool splits = true;                        // into tiles, followed by the whole image; else there is only the whole image
  std::uint32_t filter = 1;                  // Pillow's number of the resampling filter
  std::uint32_t tile_tokens = 0;             // prompt tokens per tile, one per embedding; for the largest tile where sizes differ
  std::uint32_t max_tiles = 0;               // most tiles of one image
  TokenId token = -1;                        // placeholder token, which embeddings replace
  std::array<float, 3> mean{}, deviation{};  // of red, green and blue, from 0 to 1
  double rescale = 1.0 / 255.0;
  std::uint32_t embed_side = 0;                  // pixels across and down that become one embedding, where tile sizes differ
  std::uint64_t min_pixels = 0, max_pixels = 0;  // limits of an image, where tile sizes differ
  bool has_grid_positions = false;               // the decoder counts rows and columns of embeddings, which are contiguous in the prompt
  bool attends_bidirectionally = false;  // in the decoder, embeddings attend to their whole image: a prompt is never split within it

  std::uint32_t embed_size = 0;  // elements of an embedding
  std::string place = {};        // placeholder in a prompt's text, if it is not the usual token of the model family

  // Returns true if the model supports images.
  [[nodiscard]] bool any() const { return !processor.empty(); }
  // Returns the most prompt tokens of one image.
  [[nodiscard]] std::uint32_t max_tokens() const { return max_tiles * tile_tokens; }
  // Returns the prompt tokens of a tile of this size in pixels. 0: the encoder does not take such a tile.
  [[nodiscard]] std::uint32_t tokens_of(std::uint32_t width, std::uint32_t height) const {
    if (tile_side > 0) return width == tile_side && height == tile_side ? tile_tokens : 0;
    if (embed_side == 0 || width % embed_side != 0 || height % embed_side != 0) return 0;
    const std::uint64_t tokens = std::uint64_t{width / embed_side} * (height / embed_side);
    return tokens <= tile_tokens ? static_cast<std::uint32_t>(tokens) : 0;
  }
};

// Tiles of one image: rectangles of equal size, one after another. Pixels come in rows from the top, with 8 bits of red, green and blue.
struct ImageTiles {
  std::uint32_t count = 0, side = 0;  // pixels across
  std::vector<std::uint8_t> rgb;
  std::uint32_t rows = 0;  // pixels down; 0: tiles are square

  // Returns the height of a tile in pixels.
  [[nodiscard]] std::uint32_t height() const { return rows == 0 ? side : rows; }
  [[nodiscard]] std::size_t tile_bytes() const { return std::size_t{3} * side * height(); }
};

// Embeddings of an image that an encoder of the model has computed elsewhere.
struct ImageEmbeds {
  std::vector<float> values;            // [embedding][ImageInfo::embed_size], finite
  std::uint32_t rows = 0, columns = 0;  // grid of the embeddings, where the decoder counts them (ImageInfo::has_grid_positions)
};

// One image of a prompt. The prompt already has its tokens (ImageInfo::token in place of each embedding).
struct PromptImage {
  std::string identifier;     // identifies the content: equal identifiers share embeddings and blocks
  PlaceholderRange position;  // has as many embeddings as the tiles have tokens
  std::shared_ptr<const ImageTiles> tiles;
  std::shared_ptr<const ImageEmbeds> embeds{};  // instead of tiles: as many as `position` takes; nothing is encoded
};

}  // namespace quire
