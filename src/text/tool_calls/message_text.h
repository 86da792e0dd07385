#pragma once
// Reads and changes the text of a chat's messages. A message's content is a string or an array of parts.
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

namespace quire {

[[nodiscard]] inline bool has_role(const boost::json::object& message, std::string_view role) {
  const boost::json::value* said = message.if_contains("role");
  return said != nullptr && said->is_string() && said->get_string() == role;
}

// Returns the text of a message, with line feeds between its parts; empty if it has no text.
[[nodiscard]] std::string text_of(const boost::json::object& message);

// Insert `text` before or after the content of a message, with an empty line in between. Parts that are not text stay.
void put_before(boost::json::object& message, std::string_view text);
void put_after(boost::json::object& message, std::string_view text);

// Returns whether a message has an array of parts. A template may iterate over the parts or require one text.
[[nodiscard]] bool has_text_parts(const boost::json::array& messages);
// Returns whether `rendered` contains all parts as text. A template that expects strings may have printed the array.
[[nodiscard]] bool shows_text_parts(const boost::json::array& messages, std::string_view rendered);
// Joins the parts of each message with line feeds to one text, as vLLM does.
void join_text_parts(boost::json::array& messages);

}  // namespace quire
