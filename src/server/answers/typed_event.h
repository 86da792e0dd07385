#pragma once
#include <concepts>
#include <string>
#include <string_view>

#include "base/json_writer.h"

namespace quire {

// Appends a server-sent event of the Messages or Responses API. Both the `event:` line and the data contain the type. The data is an object
// with the type and the fields that `write(json)` writes.
template <std::invocable<JsonWriter&> Write>
void append_typed_event(std::string& events, std::string_view type, Write write) {
  events += "event: ";
  events += type;
  events += "\ndata: ";
  JsonWriter json(events);
  json.begin_object().field("type", type);
  write(json);
  json.end_object();
  events += "\n\n";
}

inline void append_typed_event(std::string& events, std::string_view type) {
  append_typed_event(events, type, [](JsonWriter&) {});
}

}  // namespace quire
