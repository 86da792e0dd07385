// Where the body is read, on the server's thread or one of the job pool (which bodies with addresses go to). Nothing is decoded here but
// base64: how many pictures there may be, and how large they are, is known before any is.
#include "server/request/chat_pictures.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "base/digest.h"
#include "media/data_url.h"
#include "server/request/field_names.h"
#include "server/request/object_reader.h"

namespace quire {

namespace json = boost::json;

namespace {

// image_url: {"url": "..."}, or the address itself.
const json::value* url_of(const json::object& part) {
  const json::value* url = part.if_contains("image_url");
  if (url != nullptr && url->is_object()) url = url->get_object().if_contains("url");
  return url != nullptr && url->is_string() ? url : nullptr;
}

Result<std::vector<std::byte>> file_of(std::string_view url, const MediaFetcher* fetcher, MediaFetcher::Budget& fetched) {
  if (!is_web_address(url)) return read_data_url(url);
  if (fetcher != nullptr) return fetcher->fetch(url, fetched);
  return fail(ErrorCode::unsupported, "", "is an address, and this server fetches nothing",
              "send the picture itself: data:image/png;base64,..., or name its host in --allowed-media-domains");
}

}  // namespace

bool is_picture_part(std::string_view type) {
  return type == "image_url" || type == "input_image";
}

json::object picture_part(json::string url, std::string_view name) {
  return {{"type", "image_url"}, {"image_url", json::object{{"url", std::move(url)}}}, {kPartName, kInOwnWords + std::string(name)}};
}

Result<ChatPicture> take_picture(json::value& part, std::string field, const PictureReading& reading, MediaFetcher::Budget& fetched,
                                 bool is_one_too_many) {
  json::object& object = part.get_object();
  const json::value* name = object.if_contains(kPartName);
  const bool is_translated = name != nullptr && name->is_string();
  if (is_translated) field = name->get_string();
  if (!reading.sees)
    return fail(ErrorCode::unsupported, is_translated ? field + ".type" : field, "has type " + describe(object.at("type")),
                "this model reads text parts only");
  const json::value* url = url_of(object);
  if (url == nullptr) return fail(ErrorCode::invalid_argument, field, "has no picture", "send a data URL: data:image/png;base64,...");
  if (is_one_too_many)
    return fail(ErrorCode::invalid_argument, field, fmt::format("is picture {} of the request", reading.most + 1),
                fmt::format("send at most {} (--limit-mm-per-prompt)", reading.most));
  auto file = file_of(url->get_string(), reading.fetcher, fetched);
  if (!file) {
    file.error().field = std::move(field);
    return std::unexpected(std::move(file.error()));
  }
  ChatPicture picture{.field = std::move(field), .file = *std::move(file), .digest = {}};
  picture.digest = Sha256::of(picture.file);
  // The digest is for those who compare conversations; templates pass it over.
  part = json::object{{"type", "image"}, {"digest", to_hex(picture.digest)}};
  return picture;
}

}  // namespace quire
