// Finds the images of a conversation. Runs where the body is read: in the job pool if the body has URLs of images, otherwise there or on
// the server's thread. Only base64 is decoded here. The number of images and their file sizes are therefore known before any image is
// decoded.
#include "server/request/chat_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/digest.h"
#include "media/data_url.h"
#include "server/request/field_names.h"
#include "server/request/object_reader.h"

namespace quire {

namespace json = boost::json;

namespace {

// Returns the URL in image_url, which is {"url": "..."} or the URL itself.
const json::value* url_of(const json::object& part) {
  const json::value* url = part.if_contains("image_url");
  if (url != nullptr && url->is_object()) url = url->get_object().if_contains("url");
  return url != nullptr && url->is_string() ? url : nullptr;
}

Result<std::vector<std::byte>> file_of(std::string_view url, const MediaFetcher* fetcher, MediaFetcher::Budget& fetched) {
  if (!is_web_address(url)) return read_data_url(url);
  if (fetcher != nullptr) return fetcher->fetch(url, fetched);
  return fail(ErrorCode::unsupported, "", "is a URL, and this server does not fetch images",
              "send the image itself as data:image/png;base64,..., or add its host to --allowed-media-domains");
}

constexpr std::string_view kEmbeds = "image_embeds";

// Converts the bytes of a PyTorch tensor: 32-bit floats, little-endian.
std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    std::uint32_t bits = 0;
    for (std::size_t k = 4; k > 0; --k) bits = bits << 8U | std::to_integer<std::uint32_t>(bytes[4 * i + k - 1]);
    floats[i] = std::bit_cast<float>(bits);
  }
  return floats;
}

std::optional<std::uint32_t> count_of(const json::value& value) {
  json::error_code code;
  const auto number = value.is_number() ? value.to_number<std::uint32_t>(code) : 0;
  return !value.is_number() || code ? std::nullopt : std::optional(number);
}

// Reads the embeddings of an image. Errors have no field.
Result<ChatImage> read_embeds(const json::object& part, const ImageReading& reading) {
  if (!reading.accepts_embeds)
    return fail(ErrorCode::unsupported, "", "contains embeddings, which this server does not accept",
                "start the server with --enable-mm-embeds");
  const json::value* text = part.if_contains(kEmbeds);
  const auto bytes = text != nullptr && text->is_string() ? from_base64(text->get_string()) : std::nullopt;
  constexpr const char* kRemedy = "send [embedding][hidden_size] in 32-bit floats: base64 of tensor.float().numpy().tobytes()";
  if (!bytes || bytes->empty() || bytes->size() % sizeof(float) != 0)
    return fail(ErrorCode::invalid_argument, "", "does not contain embeddings in base64", kRemedy);
  auto embeds = std::make_shared<ImageEmbeds>();
  embeds->values = floats_of(*bytes);
  if (!std::ranges::all_of(embeds->values, [](float value) { return std::isfinite(value); }))
    return fail(ErrorCode::invalid_argument, "", "contains NaN or Inf in its embeddings", kRemedy);
  Sha256 digest;
  digest.update(std::as_bytes(std::span(kEmbeds)));
  for (const auto& [key, count] : {std::pair("rows", &embeds->rows), std::pair("columns", &embeds->columns)}) {
    const json::value* given = part.if_contains(key);
    const auto read = given == nullptr ? std::optional<std::uint32_t>(0) : count_of(*given);
    if (!read)
      return fail(ErrorCode::invalid_argument, "", fmt::format("has an invalid value of {}: {}", key, describe(*given)),
                  "send a non-negative integer");
    *count = *read;
    digest.update(std::as_bytes(std::span(count, 1)));
  }
  digest.update(*bytes);
  return ChatImage{.field = {}, .file = {}, .digest = digest.finish(), .embeds = std::move(embeds)};
}

Result<ChatImage> read_file(const json::object& part, const ImageReading& reading, MediaFetcher::Budget& fetched) {
  const json::value* url = url_of(part);
  if (url == nullptr) return fail(ErrorCode::invalid_argument, "", "contains no image", "send a data URL: data:image/png;base64,...");
  auto file = file_of(url->get_string(), reading.fetcher, fetched);
  if (!file) return std::unexpected(std::move(file.error()));
  ChatImage picture{.field = {}, .file = *std::move(file), .digest = {}};
  picture.digest = Sha256::of(picture.file);
  return picture;
}

}  // namespace

bool is_image_part(std::string_view type) {
  return type == "image_url" || type == "input_image" || type == kEmbeds;
}

json::object image_part(json::string url, std::string_view name) {
  return {{"type", "image_url"}, {"image_url", json::object{{"url", std::move(url)}}}, {kPartName, kApiFieldPrefix + std::string(name)}};
}

Result<ChatImage> read_image_part(json::value& part, std::string field, const ImageReading& reading, MediaFetcher::Budget& fetched,
                                  bool is_one_too_many) {
  json::object& object = part.get_object();
  const json::value* name = object.if_contains(kPartName);
  const bool is_translated = name != nullptr && name->is_string();
  if (is_translated) field = name->get_string();
  if (!reading.supports_images)
    return fail(ErrorCode::unsupported, is_translated ? field + ".type" : field, "has type " + describe(object.at("type")),
                "send text parts: this model supports text only");
  if (is_one_too_many)
    return fail(ErrorCode::invalid_argument, field, fmt::format("is image {} of the request", reading.most + 1),
                fmt::format("send at most {} images (--limit-mm-per-prompt)", reading.most));
  auto picture = object.at("type").get_string() == kEmbeds ? read_embeds(object, reading) : read_file(object, reading, fetched);
  if (!picture) {
    picture.error().field = std::move(field);
    return picture;
  }
  picture->field = std::move(field);
  // Adds the digest for code that compares conversations; templates ignore it.
  part = json::object{{"type", "image"}, {"digest", to_hex(picture->digest)}};
  return picture;
}

}  // namespace quire
