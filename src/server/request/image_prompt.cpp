// Converts the images of a conversation to tiles and positions in its prompt. Usually runs in the job pool, because decoding and splitting
// images is costly. The first bytes of a file contain the image's size. A prompt that does not fit, or needs too much memory, is therefore
// refused before any image is decoded.
#include "server/request/image_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <cctype>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/digest.h"

namespace quire {

namespace json = boost::json;

namespace {

std::unexpected<Error> name_part(Error error, const ChatImage& picture) {
  error.field = picture.field;
  return std::unexpected(std::move(error));
}

// The tiles of an image and the lease on the memory that they use.
struct HeldTiles {
  ImageTiles tiles;
  std::shared_ptr<const void> memory;
};

struct HeldEmbeds {
  std::shared_ptr<const ImageEmbeds> embeds;
  std::shared_ptr<const void> memory;
};

// Returns the shape of an image that the client sent as embeddings, which has one tile. Errors have no field.
Result<ImageShape> shape_of(const ImageEmbeds& embeds, const ImageInfo& info) {
  const auto wrong = [](std::string problem, std::string remedy) {
    return fail(ErrorCode::invalid_argument, "", std::move(problem), std::move(remedy));
  };
  if (info.embed_size == 0 || embeds.values.size() % info.embed_size != 0)
    return wrong(fmt::format("has {} numbers", embeds.values.size()), fmt::format("send {} numbers for each embedding", info.embed_size));
  const std::size_t count = embeds.values.size() / info.embed_size;
  const std::uint64_t grid = std::uint64_t{embeds.rows} * embeds.columns;
  if (info.has_grid_positions && grid != count)
    return wrong(fmt::format("has {} embeddings, but states {} rows of {}", count, embeds.rows, embeds.columns),
                 "send as many embeddings as rows times columns");
  if (info.tile_side > 0 ? count != info.tile_tokens : count > info.tile_tokens)
    return wrong(fmt::format("has {} embeddings", count), info.tile_side > 0
                                                              ? fmt::format("send {}, as for an image of one tile", info.tile_tokens)
                                                              : fmt::format("send at most {}", info.tile_tokens));
  return ImageShape{.grid = {}, .num_tiles = 1, .tile_tokens = static_cast<std::uint32_t>(count)};
}

std::string identifier_of(const ChatImage& picture, std::string_view salt) {
  if (salt.empty()) return to_hex(picture.digest);
  Sha256 salted;
  salted.update(std::as_bytes(std::span(picture.digest)));
  salted.update(std::as_bytes(std::span(salt)));
  return to_hex(salted.finish());
}

// Memory for decoding an image. During decoding, an image with alpha exists twice: with 4 and with 3 bytes per pixel.
constexpr std::uint64_t kScratchBytesPerPixel = 7;

std::shared_ptr<const void> wait_for_scratch(const ImagePrompt::ImageContext& context, std::uint64_t bytes) {
  while (true) {
    if (auto scratch = context.memory.reserve_scratch(bytes)) return scratch;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    pass(context.cancellation);
  }
}

// Returns whether the word "content" at this position is part of a loop "in message.content" or "in message['content']".
bool is_loop_iterable(std::string_view text, std::size_t content) {
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

std::shared_ptr<const void> ImageMemory::take(std::uint64_t bytes, std::string_view tenant) {
  std::atomic<std::uint64_t>& own = usage_->of_tenant[std::hash<std::string_view>{}(tenant) % kNumShares];
  const std::uint64_t before = usage_->all.fetch_add(bytes), held = own.fetch_add(bytes);
  const bool is_share = held == 0 || held + bytes <= 2 * (kMaxBytes - std::min(kMaxBytes, before));
  if (before + bytes > kMaxBytes || !is_share) {
    usage_->all -= bytes;
    own -= bytes;
    return nullptr;
  }
  return {usage_.get(), [usage = usage_, &own, bytes](const void* /*counter*/) {
            usage->all -= bytes;
            own -= bytes;
          }};
}

std::shared_ptr<const void> ImageMemory::reserve_scratch(std::uint64_t bytes) {
  const std::uint64_t most = bytes <= kSmallScratchBytes ? kMaxScratchBytes : kMaxScratchBytes - kMaxScratchBytes / 8;
  if (usage_->scratch.fetch_add(bytes) + bytes > most) {
    usage_->scratch -= bytes;
    return nullptr;
  }
  return {usage_.get(), [usage = usage_, bytes](const void* /*counter*/) { usage->scratch -= bytes; }};
}

Result<ImagePrompt> ImagePrompt::create(std::span<const ChatImage> pictures, const ImageInfo& info, const ImageProcessor* processor,
                                        std::uint64_t max_pixels) {
  QUIRE_CHECK(pictures.empty() || processor != nullptr, "a prompt with images has an image processor");
  ImagePrompt prompt(pictures, info, processor);
  std::uint64_t num_pixels = 0;
  for (const ChatImage& picture : pictures) {
    if (picture.embeds != nullptr) {
      auto shape = shape_of(*picture.embeds, info);
      if (!shape) return name_part(shape.error(), picture);
      prompt.shapes_.push_back(*shape);
      prompt.pixels_.push_back(0);
      continue;
    }
    const auto head = read_image_header(picture.file);
    if (!head) return name_part(head.error(), picture);
    auto shape = processor->shape(head->width, head->height, info);
    if (!shape) return name_part(shape.error(), picture);
    prompt.shapes_.push_back(*shape);
    prompt.pixels_.push_back(std::uint64_t{head->width} * head->height);
    num_pixels += prompt.pixels_.back();
    if (num_pixels > max_pixels)
      return name_part(
          {ErrorCode::too_large, "", fmt::format("brings the request's images to {} pixels, more than {}", num_pixels, max_pixels),
           "send fewer or smaller images, or raise --max-pixels"},
          picture);
  }
  return prompt;
}

Result<std::string> ImagePrompt::expand(std::string_view rendered) const {
  const std::string_view image_placeholder = processor_->image_placeholder;
  std::string text;
  std::size_t number = 0, at = 0;
  for (std::size_t next = rendered.find(image_placeholder); next != std::string_view::npos; next = rendered.find(image_placeholder, at)) {
    text += rendered.substr(at, next - at);
    if (number < shapes_.size()) text += processor_->text(shapes_[number], info_);
    ++number;
    at = next + image_placeholder.size();
  }
  if (number != shapes_.size())
    return fail(ErrorCode::invalid_argument, "messages", fmt::format("have {} placeholders for {} images", number, shapes_.size()),
                fmt::format("do not write {} in a text", image_placeholder));
  return text + std::string(rendered.substr(at));
}

Result<PlaceholderRange> ImagePrompt::place(std::span<const TokenId> tokens, std::size_t number, std::size_t& at) const {
  const auto first = std::find(tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens.end(), info_.token);
  const std::size_t begin = static_cast<std::size_t>(first - tokens.begin());
  std::vector<std::uint8_t> is_embed;
  const std::uint64_t num_needed = shapes_[number].num_tokens();
  for (std::uint64_t left = num_needed, i = begin; left > 0; ++i) {
    if (i == tokens.size()) {
      return fail(ErrorCode::unsupported, images_[number].field,
                  fmt::format("needs {} image tokens, but the tokenizer made only {} for it", num_needed, num_needed - left),
                  "use the tokenizer that belongs to the model");
    }
    is_embed.push_back(tokens[i] == info_.token ? 1 : 0);
    left -= is_embed.back();
  }
  at = begin + is_embed.size();
  return PlaceholderRange(static_cast<std::uint32_t>(begin), is_embed);
}

Result<std::vector<PromptImage>> ImagePrompt::make(std::span<const TokenId> tokens, const ImageContext& context) const {
  std::vector<PromptImage> made;
  std::size_t at = 0;
  for (std::size_t i = 0; i < images_.size(); ++i) {
    pass(context.cancellation);
    auto position = place(tokens, i, at);
    if (!position) return std::unexpected(std::move(position.error()));
    const auto& embeds = images_[i].embeds;
    auto room = context.memory.take(embeds != nullptr ? embeds->values.size() * sizeof(float) : shapes_[i].num_bytes(), context.tenant);
    if (room == nullptr) return fail(ErrorCode::overloaded, "", "the memory for images is full", "try again later");
    if (embeds != nullptr) {
      auto held = std::make_shared<HeldEmbeds>(HeldEmbeds{embeds, std::move(room)});
      made.push_back({identifier_of(images_[i], context.salt), *std::move(position), nullptr, {std::move(held), embeds.get()}});
      continue;
    }
    // Released when the tiles are made. A thread that holds scratch memory never waits, so waiting for scratch memory cannot deadlock.
    const auto scratch = wait_for_scratch(context, kScratchBytesPerPixel * pixels_[i]);
    const auto picture = decode_image(images_[i].file);
    if (!picture) return name_part(picture.error(), images_[i]);
    auto held = std::make_shared<HeldTiles>(HeldTiles{processor_->tiles(*picture, info_), std::move(room)});
    const ImageTiles* const tiles = &held->tiles;
    made.push_back({identifier_of(images_[i], context.salt), *std::move(position), {std::move(held), tiles}});
  }
  return made;
}

bool iterates_parts(std::string_view chat_template) {
  constexpr std::string_view kContent = "content";
  for (std::size_t at = chat_template.find(kContent); at != std::string_view::npos; at = chat_template.find(kContent, at + 1))
    if (is_loop_iterable(chat_template, at)) return true;
  return false;
}

void wrap_in_parts(json::array& messages) {
  for (json::value& message : messages) {
    json::value* content = message.is_object() ? message.get_object().if_contains("content") : nullptr;
    if (content != nullptr && content->is_string())
      *content = json::array{json::object{{"type", "text"}, {"text", std::move(content->get_string())}}};
  }
}

}  // namespace quire
