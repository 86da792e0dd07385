#pragma once
// Pictures in the messages of a chat: parts of OpenAI's, of vLLM's and, translated, of the other APIs' bodies.
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

// How APIs with other names say which part of their body it is, where an error is to name it.
inline constexpr std::string_view kPartName = "quire_part";

[[nodiscard]] bool is_picture_part(std::string_view type);

// The part that says the same in a chat; `name`: of the client's own part.
[[nodiscard]] boost::json::object picture_part(boost::json::string url, std::string_view name);

// The file of a part, which becomes what templates know. It may have to be fetched: `fetched` is what the request has taken of that. Errors
// name `field`, or the client's own name of it. `is_one_too_many`: the error is that.
Result<ChatPicture> take_picture(boost::json::value& part, std::string field, const PictureReading& reading, MediaFetcher::Budget& fetched,
                                 bool is_one_too_many);

}  // namespace quire
