#pragma once
// Translates the messages of Ollama's /api/chat into messages of a chat.
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/request/object_reader.h"

namespace quire {

// Returns the content of a message with the images in front of the text, or only the text if `images` is null. Reports errors to `reader`,
// which has read `images` as a field with the name `field`. `path` is the client's name of this field, for errors about an image.
[[nodiscard]] boost::json::value content_with_images(ObjectReader& reader, const boost::json::value* images, std::string_view path,
                                                     boost::json::string text, bool supports_images);

// Reads `messages` and returns them as messages of a chat; empty if the body has none. Reports errors to `reader`. Appends to `ignored` the
// names of fields of messages that have no effect.
[[nodiscard]] boost::json::array read_ollama_messages(ObjectReader& reader, bool supports_images, std::vector<std::string>& ignored);

}  // namespace quire
