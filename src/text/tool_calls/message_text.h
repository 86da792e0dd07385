#pragma once
// Reads and changes the text of chat messages. The content of a message is a string or an array of parts.
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

// Returns the text of a message, with line feeds between its parts. Returns an empty string if the message has no text.
[[nodiscard]] std::string text_of(const boost::json::object& message);

// Insert `text` before or after the content of a message, with an empty line in between. Keep parts that are not text.
void put_before(boost::json::object& message, std::string_view text);
void put_after(boost::json::object& message, std::string_view text);

// Returns whether the content of any message is an array of parts. A template may iterate over parts or require a string.
[[nodiscard]] bool has_text_parts(const boost::json::array& messages);
// Returns whether `rendered` contains the text of all parts. A template that expects strings may have printed the array instead.
[[nodiscard]] bool shows_text_parts(const boost::json::array& messages, std::string_view rendered);
// Joins the parts of each message to one text, with line feeds between them, as vLLM does.
void join_text_parts(boost::json::array& messages);

}  // namespace quire
