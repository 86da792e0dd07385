#pragma once
// Converts JSON to template values for the context of a render, and values to JSON like Python's json.dumps.
#include <boost/json/value.hpp>
#include <string>

#include "text/template/runtime.h"

namespace quire::jinja {

Value from_json(Runtime& runtime, const boost::json::value& json);

// Keyword arguments of json.dumps. The defaults are Python's, except that transformers sets ensure_ascii to false.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Implements json.dumps, also its NaN and Infinity. Throws Failure for types that json.dumps refuses, and for nesting deeper than 128.
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

// Implements the filter tojson with the settings of transformers.
Value filter_tojson(Runtime& runtime, const Value& value, const Arguments& arguments);

}  // namespace quire::jinja
