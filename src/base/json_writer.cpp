#include "base/json_writer.h"

#include <algorithm>
#include <cmath>

#include "base/append_format.h"

namespace quire {

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          append_format(out, "\\u{:04x}", static_cast<unsigned>(c));
        else
          out += c;
    }
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

void append_json_float(std::string& out, float value) {
  append_format(out, "{}", std::isfinite(value) ? std::max(value, -9999.0F) : -9999.0F);
}

JsonWriter& JsonWriter::key(std::string_view name) {
  text(name);
  *out_ += ':';
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  if (json.empty()) return *this;
  add_comma();
  *out_ += json;
  return *this;
}

JsonWriter& JsonWriter::fixed_field(std::string_view name, double value, int digits) {
  key(name);
  append_format(*out_, "{:.{}f}", value, digits);
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  add_comma();
  *out_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  *out_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::text(std::string_view text) {
  add_comma();
  append_json_string(*out_, text);
  return *this;
}

JsonWriter& JsonWriter::number(float value) {
  add_comma();
  append_json_float(*out_, value);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  if (!std::isfinite(value)) return raw("null");
  add_comma();
  append_format(*out_, "{}", value);
  return *this;
}

// Appends a comma if the last character ends a value: a quote, a bracket, a digit, or the last letter of true, false or null.
void JsonWriter::add_comma() {
  if (out_->empty()) return;
  const char last = out_->back();
  if (last == '"' || last == '}' || last == ']' || (last >= '0' && last <= '9') || last == 'e' || last == 'l') *out_ += ',';
}

}  // namespace quire
