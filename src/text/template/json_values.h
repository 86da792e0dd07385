#pragma once
// Values from and to JSON: the context of a render, and Python's json.dumps.
#include <boost/json/value.hpp>
#include <string>

#include "text/template/runtime.h"

namespace quire::jinja {

Value from_json(Runtime& runtime, const boost::json::value& json);

// json.dumps's keyword arguments; the defaults are Python's, but for ensure_ascii, which transformers turns off.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// json.dumps. Fails on what has no JSON form.
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

// The filter, with the settings of transformers.
Value filter_tojson(Runtime& runtime, const Value& value, const Arguments& arguments);

}  // namespace quire::jinja
