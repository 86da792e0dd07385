#pragma once
// Images in prompts: the image properties of a model (`ModelInfo::pictures`), and images in the form that the encoder accepts. Values.
// Tiles and embeddings are shared between threads, and do not change once a request has them.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/multimodal.h"

namespace quire {

// How an image is split into tiles for the encoder, and which tokens represent it in a prompt. If `processor` is empty, the model supports
// only text, and the other fields have no meaning.
struct ImageInfo {
  std::string processor;                     // "idefics3" (SmolVLM too), "llava", "gemma3", "qwen2_vl" (Qwen2.5-VL too)
  std::uint32_t tile_side = 0;               // side of a tile in pixels; 0: tiles have different sizes, in multiples of embed_side
  std::uint32_t longest_edge = 0;            // pixels of the longer side before an image is split; 0: not limited
  std::uint32_t shortest_edge = 0;           // pixels of the shorter side before cropping; 0: the image is scaled to the tile's size
  bool splits = true;                        // split images into tiles, followed by the whole image; false: only the whole image
  std::uint32_t filter = 1;                  // Pillow's number of the resampling filter
  std::uint32_t tile_tokens = 0;             // prompt tokens per tile, one per embedding; if tile sizes differ, of the largest tile
  std::uint32_t max_tiles = 0;               // maximum number of tiles of one image
  TokenId token = -1;                        // placeholder token, which embeddings replace
  std::array<float, 3> mean{}, deviation{};  // of red, green and blue; pixel values are from 0 to 1
  double rescale = 1.0 / 255.0;
  std::uint32_t embed_side = 0;                  // side in pixels of the square that becomes one embedding, if tile sizes differ
  std::uint64_t min_pixels = 0, max_pixels = 0;  // limits for an image, if tile sizes differ
  bool has_grid_positions = false;               // the decoder uses rows and columns of embeddings, which are contiguous in the prompt
  bool attends_bidirectionally = false;  // in the decoder, embeddings attend to their whole image, so a prompt is never split within one

  std::uint32_t embed_size = 0;  // elements of an embedding
  std::string place = {};        // placeholder in a prompt's text; empty: the usual token of the model family

  // Returns true if the model supports images.
  [[nodiscard]] bool any() const { return !processor.empty(); }
  // Returns the maximum number of prompt tokens for one image.
  [[nodiscard]] std::uint32_t max_tokens() const { return max_tiles * tile_tokens; }
  // Returns the number of prompt tokens for a tile of this size in pixels. 0: the encoder does not accept such a tile.
  [[nodiscard]] std::uint32_t tokens_of(std::uint32_t width, std::uint32_t height) const {
    if (tile_side > 0) return width == tile_side && height == tile_side ? tile_tokens : 0;
    if (embed_side == 0 || width % embed_side != 0 || height % embed_side != 0) return 0;
    const std::uint64_t tokens = std::uint64_t{width / embed_side} * (height / embed_side);
    return tokens <= tile_tokens ? static_cast<std::uint32_t>(tokens) : 0;
  }
};

// Tiles of one image: rectangles of equal size, one after another. Pixels are in rows from the top, with 8 bits each of red, green and
// blue.
struct ImageTiles {
  std::uint32_t count = 0, side = 0;  // number of tiles, and their width in pixels
  std::vector<std::uint8_t> rgb;
  std::uint32_t rows = 0;  // height of a tile in pixels; 0: tiles are square

  // Returns the height of a tile in pixels.
  [[nodiscard]] std::uint32_t height() const { return rows == 0 ? side : rows; }
  [[nodiscard]] std::size_t tile_bytes() const { return std::size_t{3} * side * height(); }
};

// Embeddings of an image that the model's encoder has computed elsewhere.
struct ImageEmbeds {
  std::vector<float> values;            // [embedding][ImageInfo::embed_size], finite
  std::uint32_t rows = 0, columns = 0;  // grid of the embeddings, if the decoder counts rows and columns (ImageInfo::has_grid_positions)
};

// One image of a prompt. The prompt already has the image's tokens (one ImageInfo::token per embedding).
struct PromptImage {
  std::string identifier;     // identifies the content: equal identifiers share embeddings and blocks
  PlaceholderRange position;  // has as many embeddings as the tiles have prompt tokens
  std::shared_ptr<const ImageTiles> tiles;
  std::shared_ptr<const ImageEmbeds> embeds{};  // instead of tiles: as many embeddings as `position` has; the encoder does not run
};

}  // namespace quire
