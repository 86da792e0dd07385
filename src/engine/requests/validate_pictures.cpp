// What the worker and the core take without looking: tiles of the encoder's size, as many embeddings as they give, each behind a token of
// the prompt.
#include "engine/requests/validate_pictures.h"

#include <fmt/format.h>

#include <utility>

namespace quire {
namespace {

constexpr std::size_t kMaxIdentifierBytes = 256;

Result<void> check_picture(const PromptPicture& picture, std::size_t number, const PictureInfo& info) {
  const auto wrong = [number](std::string problem) {
    return fail(ErrorCode::invalid_argument, fmt::format("pictures[{}]", number), std::move(problem),
                "prepare it as ModelInfo::pictures says");
  };
  if (picture.identifier.empty() || picture.identifier.size() > kMaxIdentifierBytes)
    return wrong(fmt::format("has an identifier of {} bytes", picture.identifier.size()));
  if (picture.tiles == nullptr || picture.tiles->count == 0 || picture.tiles->count > info.max_tiles)
    return wrong(fmt::format("has {} tiles, not 1 to {}", picture.tiles == nullptr ? 0 : picture.tiles->count, info.max_tiles));
  const PictureTiles& tiles = *picture.tiles;
  const std::uint32_t tile_tokens = info.tokens_of(tiles.side, tiles.height());
  if (tile_tokens == 0 || tiles.rgb.size() != tiles.tile_bytes() * tiles.count)
    return wrong(fmt::format("has {} bytes in tiles of {} x {} pixels", tiles.rgb.size(), tiles.side, tiles.height()));
  if (picture.position.num_embeds() != tiles.count * tile_tokens)
    return wrong(fmt::format("has room for {} embeddings, and {} tiles", picture.position.num_embeds(), tiles.count));
  if (info.counts_rows && picture.position.length() != picture.position.num_embeds()) return wrong("has other tokens among its embeddings");
  return {};
}

}  // namespace

Result<void> validate_pictures(const EngineRequest& request, const PictureInfo& info) {
  if (request.pictures.empty()) return {};
  if (!info.any()) return fail(ErrorCode::unsupported, "pictures", "are given, and the model reads text alone", "use a model that sees");
  const std::pair<const char*, bool> given[] = {{"beam_search", request.beam_search.has_value()}, {"session", request.session}};
  for (const auto& [field, is_given] : given)
    if (is_given) return fail(ErrorCode::unsupported, field, "is given with pictures", "leave it out");
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
