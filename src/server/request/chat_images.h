#pragma once
// Reads images in the messages of a chat: parts of OpenAI's, of vLLM's and, translated, of the other APIs' bodies.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "server/http/media_fetcher.h"
#include "server/request/completion_request.h"

namespace quire {

// The key under which a translated part has the client's name for it, for errors.
inline constexpr std::string_view kPartName = "quire_part";

[[nodiscard]] bool is_image_part(std::string_view type);

// Returns the equivalent part of a chat. `name`: the client's name for the part.
[[nodiscard]] boost::json::object image_part(boost::json::string url, std::string_view name);

// Returns the image of a part and replaces the part by one that templates know. The image may have to be fetched; `fetched` counts the
// fetches of the request. Errors name `field`, or the client's name for it. `is_one_too_many`: the image exceeds the limit, which is an
// error.
Result<ChatImage> read_image_part(boost::json::value& part, std::string field, const ImageReading& reading, MediaFetcher::Budget& fetched,
                                  bool is_one_too_many);

}  // namespace quire
