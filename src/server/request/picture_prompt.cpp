// From the pictures of a conversation to tiles and places in its prompt. On a thread of the job pool, as a rule: what is costly about a
// picture happens here. Its size is known from the first bytes, so a prompt that does not fit, or asks for too much memory, is refused
// before anything is decoded.
#include "server/request/picture_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <cctype>
#include <utility>

#include "base/check.h"
#include "base/digest.h"

namespace quire {

namespace json = boost::json;

namespace {

std::unexpected<Error> name_part(Error error, const ChatPicture& picture) {
  error.field = picture.field;
  return std::unexpected(std::move(error));
}

// Tiles, and the memory that is counted for them.
struct HeldTiles {
  PictureTiles tiles;
  std::shared_ptr<const void> memory;
};

struct HeldEmbeds {
  std::shared_ptr<const PictureEmbeds> embeds;
  std::shared_ptr<const void> memory;
};

// As of a picture that is not cut. Errors are without a field.
Result<PictureShape> shape_of(const PictureEmbeds& embeds, const PictureInfo& info) {
  const auto wrong = [](std::string problem, std::string remedy) {
    return fail(ErrorCode::invalid_argument, "", std::move(problem), std::move(remedy));
  };
  if (info.embed_size == 0 || embeds.values.size() % info.embed_size != 0)
    return wrong(fmt::format("has {} numbers", embeds.values.size()), fmt::format("send {} for each embedding", info.embed_size));
  const std::size_t count = embeds.values.size() / info.embed_size;
  const std::uint64_t grid = std::uint64_t{embeds.rows} * embeds.columns;
  if (info.counts_rows && grid != count)
    return wrong(fmt::format("has {} embeddings, and says {} rows of {}", count, embeds.rows, embeds.columns),
                 "send rows and columns of embeddings");
  if (info.tile_side > 0 ? count != info.tile_tokens : count > info.tile_tokens)
    return wrong(fmt::format("has {} embeddings", count), info.tile_side > 0
                                                              ? fmt::format("send {}, those of a picture that is not cut", info.tile_tokens)
                                                              : fmt::format("send at most {}", info.tile_tokens));
  return PictureShape{.grid = {}, .num_tiles = 1, .tile_tokens = static_cast<std::uint32_t>(count)};
}

std::string identifier_of(const ChatPicture& picture, std::string_view salt) {
  if (salt.empty()) return to_hex(picture.digest);
  Sha256 salted;
  salted.update(std::as_bytes(std::span(picture.digest)));
  salted.update(std::as_bytes(std::span(salt)));
  return to_hex(salted.finish());
}

// "message.content" or "message['content']" behind "in".
bool is_gone_through(std::string_view text, std::size_t content) {
  std::size_t at = content;
  if (at >= 2 && (text[at - 1] == '\'' || text[at - 1] == '"') && text[at - 2] == '[')
    at -= 2;
  else if (at >= 1 && text[at - 1] == '.')
    at -= 1;
  else
    return false;
  while (at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0 || text[at - 1] == '_')) --at;
  while (at > 0 && text[at - 1] == ' ') --at;
  return at >= 3 && text.substr(at - 2, 2) == "in" && text[at - 3] == ' ';
}

}  // namespace

std::shared_ptr<const void> PictureMemory::take(std::uint64_t bytes) {
  if (taken_->fetch_add(bytes) + bytes > kMostBytes) {
    *taken_ -= bytes;
    return nullptr;
  }
  return {taken_.get(), [taken = taken_, bytes](const void* /*counter*/) { *taken -= bytes; }};
}

Result<PicturePrompt> PicturePrompt::create(std::span<const ChatPicture> pictures, const PictureInfo& info,
                                            const PictureProcessor* processor) {
  QUIRE_CHECK(pictures.empty() || processor != nullptr, "a picture for a model that sees none");
  PicturePrompt prompt(pictures, info, processor);
  for (const ChatPicture& picture : pictures) {
    if (picture.embeds != nullptr) {
      auto shape = shape_of(*picture.embeds, info);
      if (!shape) return name_part(shape.error(), picture);
      prompt.shapes_.push_back(*shape);
      continue;
    }
    const auto head = read_picture_head(picture.file);
    if (!head) return name_part(head.error(), picture);
    auto shape = processor->shape(head->width, head->height, info);
    if (!shape) return name_part(shape.error(), picture);
    prompt.shapes_.push_back(*shape);
  }
  return prompt;
}

Result<std::string> PicturePrompt::expand(std::string_view rendered) const {
  const std::string_view mark = processor_->mark;
  std::string text;
  std::size_t number = 0, at = 0;
  for (std::size_t next = rendered.find(mark); next != std::string_view::npos; next = rendered.find(mark, at)) {
    text += rendered.substr(at, next - at);
    if (number < shapes_.size()) text += processor_->text(shapes_[number], info_);
    ++number;
    at = next + mark.size();
  }
  if (number != shapes_.size())
    return fail(ErrorCode::invalid_argument, "messages", fmt::format("have {} places for {} pictures", number, shapes_.size()),
                fmt::format("leave {} out of texts", mark));
  return text + std::string(rendered.substr(at));
}

Result<PlaceholderRange> PicturePrompt::place(std::span<const TokenId> tokens, std::size_t number, std::size_t& at) const {
  const auto first = std::find(tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens.end(), info_.token);
  const std::size_t begin = static_cast<std::size_t>(first - tokens.begin());
  std::vector<std::uint8_t> is_embed;
  for (std::uint64_t left = shapes_[number].num_tokens(), i = begin; left > 0; ++i) {
    if (i == tokens.size())
      return fail(ErrorCode::unsupported, pictures_[number].field, "has fewer tokens than embeddings",
                  "use the tokenizer that belongs to the model");
    is_embed.push_back(tokens[i] == info_.token ? 1 : 0);
    left -= is_embed.back();
  }
  at = begin + is_embed.size();
  return PlaceholderRange(static_cast<std::uint32_t>(begin), is_embed);
}

Result<std::vector<PromptPicture>> PicturePrompt::make(std::span<const TokenId> tokens, std::string_view salt,
                                                       PictureMemory& memory) const {
  std::vector<PromptPicture> made;
  std::size_t at = 0;
  for (std::size_t i = 0; i < pictures_.size(); ++i) {
    auto position = place(tokens, i, at);
    if (!position) return std::unexpected(std::move(position.error()));
    const auto& embeds = pictures_[i].embeds;
    auto room = memory.take(embeds != nullptr ? embeds->values.size() * sizeof(float) : shapes_[i].num_bytes());
    if (room == nullptr) return fail(ErrorCode::overloaded, "", "too many pictures wait to be seen", "try again later");
    if (embeds != nullptr) {
      auto held = std::make_shared<HeldEmbeds>(HeldEmbeds{embeds, std::move(room)});
      made.push_back({identifier_of(pictures_[i], salt), *std::move(position), nullptr, {std::move(held), embeds.get()}});
      continue;
    }
    const auto picture = decode_picture(pictures_[i].file);
    if (!picture) return name_part(picture.error(), pictures_[i]);
    auto held = std::make_shared<HeldTiles>(HeldTiles{processor_->tiles(*picture, info_), std::move(room)});
    const PictureTiles* const tiles = &held->tiles;
    made.push_back({identifier_of(pictures_[i], salt), *std::move(position), {std::move(held), tiles}});
  }
  return made;
}

bool wants_parts(std::string_view chat_template) {
  constexpr std::string_view kContent = "content";
  for (std::size_t at = chat_template.find(kContent); at != std::string_view::npos; at = chat_template.find(kContent, at + 1))
    if (is_gone_through(chat_template, at)) return true;
  return false;
}

void put_into_parts(json::array& messages) {
  for (json::value& message : messages) {
    json::value* content = message.is_object() ? message.get_object().if_contains("content") : nullptr;
    if (content != nullptr && content->is_string())
      *content = json::array{json::object{{"type", "text"}, {"text", std::move(content->get_string())}}};
  }
}

}  // namespace quire
