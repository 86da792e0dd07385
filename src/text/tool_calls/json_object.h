#pragma once
// Reads JSON objects byte by byte. Boost's parser decides whether a text is JSON.
#include <boost/json/basic_parser.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_part.h"
#include "text/tool_calls/tool.h"

namespace quire {

// open: more bytes must follow. whole: the object is complete. bad: no continuation makes the text the required JSON.
enum class JsonState : std::uint8_t { open, whole, bad };

// Reads any JSON object that is at most 64 levels deep.
class JsonObject {
 public:
  JsonObject();
  ~JsonObject();
  JsonObject(JsonObject&&) noexcept;
  JsonObject& operator=(JsonObject&&) noexcept;

  // The first byte must be '{'. The caller must stop after `whole` or `bad`.
  JsonState push(char byte);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

// Reads a call that is a JSON object with "name" and "arguments" or "parameters". The arguments are an object, a string that contains an
// object, or null. The fields may have any order, and other fields are ignored.
class JsonCall {
 public:
  // With `tools`, the state becomes `bad` for a call of any other tool or an unknown field. `tools` must outlive this object.
  explicit JsonCall(const std::vector<Tool>* tools = nullptr);
  ~JsonCall();
  JsonCall(JsonCall&&) noexcept;
  JsonCall& operator=(JsonCall&&) noexcept;

  // Writes the call to `out` as soon as its name and the first byte of its arguments are known.
  JsonState push(char byte, CallWriter& out);

 private:
  struct Parser;
  bool begin(CallWriter& out);
  bool end(CallWriter& out);

  std::unique_ptr<Parser> parser_;
  const std::vector<Tool>* tools_;
  bool begun_ = false;
  std::string early_;  // arguments that came before the name
};

// How complete_object() treats a last value that is a string without its end.
enum class UnterminatedString : std::uint8_t { dropped, closed };

// Completes an object from `begun`, the beginning of its JSON text. Returns the JSON text of its fields up to the last complete value.
// Returns nullopt if no object begins with this text.
[[nodiscard]] std::optional<std::string> complete_object(std::string_view begun, UnterminatedString unterminated);

}  // namespace quire
