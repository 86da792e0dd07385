// Checks the properties of images on which the worker and the core rely: tiles of the encoder's size, the correct number of embeddings, and
// positions within the prompt.
#include "engine/requests/validate_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

constexpr std::size_t kMaxIdentifierBytes = 256;

// Returns the problem of the embeddings; empty: they are valid.
std::string embeds_problem(const PromptImage& picture, const ImageInfo& info) {
  const ImageEmbeds& embeds = *picture.embeds;
  const std::uint64_t count = picture.position.num_embeds(), size = info.embed_size;
  if (picture.tiles != nullptr) return "has both tiles and embeddings";
  if (count == 0 || count > info.max_tokens()) return fmt::format("has {} embeddings, but must have 1 to {}", count, info.max_tokens());
  if (embeds.values.size() != count * size) return fmt::format("has {} values, but must have {} x {}", embeds.values.size(), count, size);
  if (info.has_grid_positions && std::uint64_t{embeds.rows} * embeds.columns != count)
    return fmt::format("has {} embeddings, but must have {} rows of {}", count, embeds.rows, embeds.columns);
  if (!std::ranges::all_of(embeds.values, [](float value) { return std::isfinite(value); })) return "contains NaN or Inf";
  return {};
}

Result<void> check_image(const PromptImage& picture, std::size_t number, const ImageInfo& info) {
  const auto wrong = [number](std::string problem) {
    return fail(ErrorCode::invalid_argument, fmt::format("pictures[{}]", number), std::move(problem),
                "prepare the image as ModelInfo::pictures describes");
  };
  if (picture.identifier.empty() || picture.identifier.size() > kMaxIdentifierBytes)
    return wrong(fmt::format("has an identifier of {} bytes, but must have 1 to 256", picture.identifier.size()));
  if (info.has_grid_positions && picture.position.length() != picture.position.num_embeds())
    return wrong("has text tokens between its embeddings");
  if (picture.embeds != nullptr) {
    std::string problem = embeds_problem(picture, info);
    return problem.empty() ? Result<void>{} : wrong(std::move(problem));
  }
  if (picture.tiles == nullptr || picture.tiles->count == 0 || picture.tiles->count > info.max_tiles)
    return wrong(fmt::format("has {} tiles, but must have 1 to {}", picture.tiles == nullptr ? 0 : picture.tiles->count, info.max_tiles));
  const ImageTiles& tiles = *picture.tiles;
  const std::uint32_t tile_tokens = info.tokens_of(tiles.side, tiles.height());
  if (tile_tokens == 0 || tiles.rgb.size() != tiles.tile_bytes() * tiles.count)
    return wrong(fmt::format("has {} bytes, which do not match tiles of {} x {} pixels", tiles.rgb.size(), tiles.side, tiles.height()));
  if (picture.position.num_embeds() != tiles.count * tile_tokens)
    return wrong(fmt::format("has {} placeholder tokens, which do not match its {} tiles", picture.position.num_embeds(), tiles.count));
  return {};
}

}  // namespace

Result<void> validate_images(const EngineRequest& request, const ImageInfo& info) {
  if (request.pictures.empty()) return {};
  if (!info.any())
    return fail(ErrorCode::unsupported, "pictures", "are set, but the model takes text input only", "use a model that supports images");
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < request.pictures.size(); ++i) {
    const PromptImage& picture = request.pictures[i];
    if (auto valid = check_image(picture, i, info); !valid) return valid;
    const std::uint64_t begin = picture.position.offset();
    if (begin < end || begin + picture.position.length() > request.prompt.size())
      return fail(ErrorCode::invalid_argument, fmt::format("pictures[{}]", i),
                  fmt::format("begins at token {}, which is outside the prompt or overlaps another image", begin),
                  "list images in order of position, each within the prompt");
    end = begin + picture.position.length();
  }
  return {};
}

}  // namespace quire
