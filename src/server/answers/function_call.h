#pragma once
#include <string_view>

#include "base/json_writer.h"

namespace quire {

// Writes an element of OpenAI's "tool_calls".
inline void write_function_call(JsonWriter& json, std::string_view id, std::string_view name, std::string_view arguments) {
  json.begin_object().field("id", id).field("type", "function");
  json.begin_object("function").field("name", name).field("arguments", arguments).end_object();
  json.end_object();
}

}  // namespace quire
