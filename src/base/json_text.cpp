#include "base/json_text.h"

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

}  // namespace quire
