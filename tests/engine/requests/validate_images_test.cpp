// The images that a request may contain, and the texts of the errors. Two models: one takes tiles of a fixed size, the other one tile of
// any size with a grid of embeddings.
#include "engine/requests/validate_images.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace quire {
namespace {

// Up to three tiles of 4 x 4 pixels, each with two embeddings of three numbers.
ImageInfo tile_info() {
  ImageInfo info;
  info.processor = "idefics3";
  info.tile_side = 4;
  info.tile_tokens = 2;
  info.max_tiles = 3;
  info.embed_size = 3;
  return info;
}

// One tile of up to eight squares of 2 x 2 pixels, each with one embedding.
ImageInfo grid_info() {
  ImageInfo info;
  info.processor = "qwen2_vl";
  info.embed_side = 2;
  info.tile_tokens = 8;
  info.max_tiles = 1;
  info.embed_size = 3;
  info.has_grid_positions = true;
  return info;
}

std::shared_ptr<ImageTiles> tiles_of(std::uint32_t count, std::uint32_t side, std::uint32_t rows = 0) {
  auto tiles = std::make_shared<ImageTiles>();
  tiles->count = count;
  tiles->side = side;
  tiles->rows = rows;
  tiles->rgb.resize(tiles->tile_bytes() * count);
  return tiles;
}

PromptImage tiled_at(std::uint32_t offset, std::uint32_t num_tiles) {
  return {"image", PlaceholderRange(offset, 2 * num_tiles), tiles_of(num_tiles, 4)};
}

PromptImage embedded_at(std::uint32_t offset, std::uint32_t rows, std::uint32_t columns) {
  auto embeds = std::make_shared<ImageEmbeds>();
  embeds->rows = rows;
  embeds->columns = columns;
  embeds->values.assign(std::size_t{rows} * columns * 3, 0.5F);
  return {"image", PlaceholderRange(offset, rows * columns), nullptr, std::move(embeds)};
}

std::string image_error(const ImageInfo& info, std::vector<PromptImage> pictures, std::uint32_t prompt_length = 20) {
  EngineRequest request;
  request.prompt.resize(prompt_length);
  request.pictures = std::move(pictures);
  const Result<void> valid = validate_images(request, info);
  return valid ? "" : valid.error().to_string();
}

std::string prepared(const std::string& problem, std::size_t index = 0) {
  return "pictures[" + std::to_string(index) + "]: " + problem + "; prepare the image as ModelInfo::pictures describes";
}

TEST(ValidateImages, RefusesImagesForTextModels) {
  EXPECT_EQ(image_error(ImageInfo{}, {}), "");
  EXPECT_EQ(image_error(ImageInfo{}, {tiled_at(0, 1)}),
            "pictures: are set, but the model takes text input only; use a model that supports images");
}

TEST(ValidateImages, BoundsTheIdentifier) {
  for (const auto& [length, fits] : {std::pair(0U, false), std::pair(1U, true), std::pair(256U, true), std::pair(257U, false)}) {
    PromptImage image = tiled_at(0, 1);
    image.identifier.assign(length, 'x');
    EXPECT_EQ(image_error(tile_info(), {image}),
              fits ? "" : prepared("has an identifier of " + std::to_string(length) + " bytes, but must have 1 to 256"));
  }
}

TEST(ValidateImages, ChecksTheNumberAndTheSizeOfTiles) {
  for (const std::uint32_t count : {1U, 3U}) EXPECT_EQ(image_error(tile_info(), {tiled_at(0, count)}), "");
  for (const std::uint32_t count : {0U, 4U})
    EXPECT_EQ(image_error(tile_info(), {tiled_at(0, count)}), prepared("has " + std::to_string(count) + " tiles, but must have 1 to 3"));
  PromptImage without = tiled_at(0, 1);
  without.tiles = nullptr;
  EXPECT_EQ(image_error(tile_info(), {without}), prepared("has 0 tiles, but must have 1 to 3"));

  const auto bytes = [](std::size_t count, const char* size) {
    return prepared("has " + std::to_string(count) + " bytes, which do not match tiles of " + size + " pixels");
  };
  for (const std::size_t count : {95U, 97U}) {
    PromptImage image = tiled_at(0, 2);
    const auto tiles = tiles_of(2, 4);
    tiles->rgb.resize(count);
    image.tiles = tiles;
    EXPECT_EQ(image_error(tile_info(), {image}), bytes(count, "4 x 4"));
  }
  PromptImage wrong_side = tiled_at(0, 1);
  wrong_side.tiles = tiles_of(1, 5);
  EXPECT_EQ(image_error(tile_info(), {wrong_side}), bytes(75, "5 x 5"));
  PromptImage wrong_height = tiled_at(0, 1);
  wrong_height.tiles = tiles_of(1, 4, 6);
  EXPECT_EQ(image_error(tile_info(), {wrong_height}), bytes(72, "4 x 6"));
}

TEST(ValidateImages, NeedsOnePlaceholderForEachEmbedding) {
  for (const std::uint32_t length : {3U, 5U}) {
    PromptImage image = tiled_at(0, 2);
    image.position = PlaceholderRange(0, length);
    EXPECT_EQ(image_error(tile_info(), {image}),
              prepared("has " + std::to_string(length) + " placeholder tokens, which do not match its 2 tiles"));
  }
  const std::vector<std::uint8_t> with_text = {1, 1, 0, 1, 1};
  PromptImage parted = tiled_at(0, 2);
  parted.position = PlaceholderRange(0, with_text);
  EXPECT_EQ(image_error(tile_info(), {parted}), "") << "text may stand between two tiles";
  PromptImage grid{"image", PlaceholderRange(0, with_text), tiles_of(1, 4)};
  EXPECT_EQ(image_error(grid_info(), {grid}), prepared("has text tokens between its embeddings"));
  grid.position = PlaceholderRange(0, 4);
  EXPECT_EQ(image_error(grid_info(), {grid}), "");
}

TEST(ValidateImages, ChecksEmbeddingsThatTheClientComputed) {
  EXPECT_EQ(image_error(grid_info(), {embedded_at(0, 2, 4)}), "");
  EXPECT_EQ(image_error(grid_info(), {embedded_at(0, 1, 1)}), "");
  EXPECT_EQ(image_error(grid_info(), {embedded_at(0, 3, 3)}), prepared("has 9 embeddings, but must have 1 to 8"));
  EXPECT_EQ(image_error(grid_info(), {embedded_at(0, 0, 3)}), prepared("has 0 embeddings, but must have 1 to 8"));
  PromptImage both = embedded_at(0, 2, 2);
  both.tiles = tiles_of(1, 4);
  EXPECT_EQ(image_error(grid_info(), {both}), prepared("has both tiles and embeddings"));

  const auto changed = [](const std::function<void(ImageEmbeds&)>& change, const ImageInfo& info) {
    PromptImage image = embedded_at(0, 2, 2);
    auto embeds = std::make_shared<ImageEmbeds>(*image.embeds);
    change(*embeds);
    image.embeds = std::move(embeds);
    return image_error(info, {image});
  };
  EXPECT_EQ(changed([](ImageEmbeds& e) { e.values.pop_back(); }, grid_info()), prepared("has 11 values, but must have 4 x 3"));
  EXPECT_EQ(changed([](ImageEmbeds& e) { e.values.push_back(0.0F); }, grid_info()), prepared("has 13 values, but must have 4 x 3"));
  EXPECT_EQ(changed([](ImageEmbeds& e) { ++e.rows; }, grid_info()), prepared("has 4 embeddings, but must have 3 rows of 2"));
  EXPECT_EQ(changed([](ImageEmbeds& e) { ++e.rows; }, tile_info()), "") << "this model counts no rows";
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()})
    EXPECT_EQ(changed([bad](ImageEmbeds& e) { e.values.back() = bad; }, grid_info()), prepared("contains NaN or Inf"));
}

TEST(ValidateImages, ListsImagesInOrderWithinThePrompt) {
  EXPECT_EQ(image_error(tile_info(), {tiled_at(0, 1), tiled_at(2, 2), tiled_at(16, 2)}), "") << "images may follow each other directly";
  const auto misplaced = [](std::size_t index, std::uint32_t begin) {
    return "pictures[" + std::to_string(index) + "]: begins at token " + std::to_string(begin) +
           ", which is outside the prompt or overlaps another image; list images in order of position, each within the prompt";
  };
  EXPECT_EQ(image_error(tile_info(), {tiled_at(0, 1), tiled_at(1, 1)}), misplaced(1, 1));
  EXPECT_EQ(image_error(tile_info(), {tiled_at(6, 1), tiled_at(2, 1)}), misplaced(1, 2));
  EXPECT_EQ(image_error(tile_info(), {tiled_at(17, 2)}), misplaced(0, 17));
  PromptImage bad = tiled_at(4, 1);
  bad.identifier = "";
  EXPECT_EQ(image_error(tile_info(), {tiled_at(0, 1), bad}), prepared("has an identifier of 0 bytes, but must have 1 to 256", 1));
}

}  // namespace
}  // namespace quire
