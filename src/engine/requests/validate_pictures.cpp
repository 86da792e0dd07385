// What the worker and the core take without looking: tiles of the encoder's size, as many embeddings as they give, each behind a token of
// the prompt.
#include "engine/requests/validate_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

constexpr std::size_t kMaxIdentifierBytes = 256;

// What of them does not fit, or nothing.
std::string embeds_problem(const PromptPicture& picture, const PictureInfo& info) {
  const PictureEmbeds& embeds = *picture.embeds;
  const std::uint64_t count = picture.position.num_embeds(), size = info.embed_size;
  if (picture.tiles != nullptr) return "has tiles and embeddings";
  if (count == 0 || count > info.max_tokens()) return fmt::format("has {} embeddings, not 1 to {}", count, info.max_tokens());
  if (embeds.values.size() != count * size) return fmt::format("has {} numbers, not {} times {}", embeds.values.size(), count, size);
  if (info.counts_rows && std::uint64_t{embeds.rows} * embeds.columns != count)
    return fmt::format("has {} embeddings, not {} rows of {}", count, embeds.rows, embeds.columns);
  if (!std::ranges::all_of(embeds.values, [](float value) { return std::isfinite(value); })) return "has numbers that are none";
  return {};
}

Result<void> check_picture(const PromptPicture& picture, std::size_t number, const PictureInfo& info) {
  const auto wrong = [number](std::string problem) {
    return fail(ErrorCode::invalid_argument, fmt::format("pictures[{}]", number), std::move(problem),
                "prepare it as ModelInfo::pictures says");
  };
  if (picture.identifier.empty() || picture.identifier.size() > kMaxIdentifierBytes)
    return wrong(fmt::format("has an identifier of {} bytes", picture.identifier.size()));
  if (info.counts_rows && picture.position.length() != picture.position.num_embeds()) return wrong("has other tokens among its embeddings");
  if (picture.embeds != nullptr) {
    std::string problem = embeds_problem(picture, info);
    return problem.empty() ? Result<void>{} : wrong(std::move(problem));
  }
  if (picture.tiles == nullptr || picture.tiles->count == 0 || picture.tiles->count > info.max_tiles)
    return wrong(fmt::format("has {} tiles, not 1 to {}", picture.tiles == nullptr ? 0 : picture.tiles->count, info.max_tiles));
  const PictureTiles& tiles = *picture.tiles;
  const std::uint32_t tile_tokens = info.tokens_of(tiles.side, tiles.height());
  if (tile_tokens == 0 || tiles.rgb.size() != tiles.tile_bytes() * tiles.count)
    return wrong(fmt::format("has {} bytes in tiles of {} x {} pixels", tiles.rgb.size(), tiles.side, tiles.height()));
  if (picture.position.num_embeds() != tiles.count * tile_tokens)
    return wrong(fmt::format("has room for {} embeddings, and {} tiles", picture.position.num_embeds(), tiles.count));
  return {};
}

}  // namespace

Result<void> validate_pictures(const EngineRequest& request, const PictureInfo& info) {
  if (request.pictures.empty()) return {};
  if (!info.any()) return fail(ErrorCode::unsupported, "pictures", "are given, and the model reads text alone", "use a model that sees");
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < request.pictures.size(); ++i) {
    const PromptPicture& picture = request.pictures[i];
    if (auto valid = check_picture(picture, i, info); !valid) return valid;
    const std::uint64_t begin = picture.position.offset();
    if (begin < end || picture.position.length() == 0 || begin + picture.position.length() > request.prompt.size())
      return fail(ErrorCode::invalid_argument, fmt::format("pictures[{}]", i), fmt::format("stands at token {}", begin),
                  "give them in their order, each within the prompt");
    end = begin + picture.position.length();
  }
  return {};
}

}  // namespace quire
