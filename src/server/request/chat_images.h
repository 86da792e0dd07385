#pragma once
// Reads images in the messages of a chat. Accepts the parts of OpenAI's and vLLM's bodies; other APIs translate their parts first.
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

// The key in a translated part whose value is the client's name for the part. Errors use this name.
inline constexpr std::string_view kPartName = "quire_part";

[[nodiscard]] bool is_image_part(std::string_view type);

// Returns the part of a chat message with the image at `url`. `name` is the client's name for the part.
[[nodiscard]] boost::json::object image_part(boost::json::string url, std::string_view name);

// Returns the image of a part, and replaces the part by a part that templates know. May fetch the image; `fetched` is the budget for all
// fetches of the request. If `is_one_too_many`, returns an error, because the number of images exceeds the limit. Errors name `field`, or
// the client's name for the part.
Result<ChatImage> read_image_part(boost::json::value& part, std::string field, const ImageReading& reading, MediaFetcher::Budget& fetched,
                                  bool is_one_too_many);

}  // namespace quire
