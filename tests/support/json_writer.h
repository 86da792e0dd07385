#pragma once
// Writes random JSON values in the styles of real writers: json.dumps with and without ensure_ascii, JSON.stringify, PHP's escaped slashes,
// hexadecimal digits of \u in either case, indentation, separators, and keys in any order.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace quire::test {

using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t end) {
  return static_cast<std::size_t>(random() % end);
}
inline bool one_in(Random& random, std::size_t count) {
  return below(random, count) == 0;
}

inline void append_utf8(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
    return;
  }
  const int size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  text += static_cast<char>((0xF00U >> size) | (c >> (6 * (size - 1))));
  for (int i = size - 2; i >= 0; --i) text += static_cast<char>(0x80U | (c >> (6 * i) & 0x3FU));
}

inline std::u32string code_points_of(std::string_view text) {
  std::u32string all;
  for (std::size_t i = 0; i < text.size();) {
    const auto head = static_cast<unsigned char>(text[i]);
    const std::size_t size = head < 0x80 ? 1 : head < 0xE0 ? 2 : head < 0xF0 ? 3 : 4;
    char32_t c = size == 1 ? head : head & (0xFFU >> (size + 1));
    for (std::size_t k = 1; k < size; ++k) c = c << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3FU);
    all += c;
    i += size;
  }
  return all;
}

inline char32_t random_character(Random& random) {
  switch (below(random, 12)) {
    case 0:
      return U"\"\\/\b\f\n\r\t"[below(random, 8)];
    case 1:
      return static_cast<char32_t>(below(random, 0x20));
    case 2:
      return U"\u00e9\u00fc\u00df\u0416\u65e5\u672c\u8a9e\u05d0\u0639\u20ac\u2028\u007f"[below(random, 12)];
    case 3:
      return static_cast<char32_t>(0x1F300 + below(random, 0x300));
    case 4: {
      const auto c = static_cast<char32_t>(0xA1 + below(random, 0xD700 - 0xA1));
      return c;
    }
    default:
      return U"abcdefghijklmnopqrstuvwxyz ABC0123456789-_.:,{}[]<>&'"[below(random, 53)];
  }
}

inline std::string random_text(Random& random, std::size_t most = 24) {
  static constexpr std::string_view kWords[] = {
      "caf\u00e9 M\u00fcller", "https://a.example/b?c=d&e", "C:\\temp\\new", "say \"hi\"\n", "Z\u00fcrich", "\U0001F600 ok", "</script>",
      "\u65e5\u672c\u8a9e"};
  if (one_in(random, 4)) return std::string(kWords[below(random, std::size(kWords))]);
  std::string text;
  for (std::size_t i = below(random, most + 1); i > 0; --i) append_utf8(text, random_character(random));
  return text;
}

inline boost::json::value random_number(Random& random) {
  switch (below(random, 6)) {
    case 0:
      return static_cast<std::int64_t>(random());
    case 1:
      return static_cast<double>(below(random, 1'000'000)) / std::pow(10.0, static_cast<double>(below(random, 20)));
    case 2:
      return -static_cast<double>(below(random, 100'000)) / 100;
    case 3:
      return std::pow(10.0, static_cast<double>(below(random, 20))) * static_cast<double>(1 + below(random, 99));
    default:
      return static_cast<std::int64_t>(below(random, 2000)) - 1000;
  }
}

inline boost::json::value random_value(Random& random, int levels) {
  switch (below(random, levels > 0 ? 9 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return one_in(random, 2);
    case 2:
    case 3:
      return random_number(random);
    case 7: {
      boost::json::array items;
      for (std::size_t i = below(random, 4); i > 0; --i) items.push_back(random_value(random, levels - 1));
      return items;
    }
    case 8: {
      boost::json::object fields;
      static constexpr std::string_view kNames[] = {"name", "city", "a/b", "a\u00f1o", "x", "\u540d\u524d", "with space", "q\"uote", "id"};
      for (std::size_t i = below(random, 5); i > 0; --i)
        fields[one_in(random, 4) ? random_text(random, 8) : std::string(kNames[below(random, std::size(kNames))])] =
            random_value(random, levels - 1);
      return fields;
    }
    default: {
      const std::string text = random_text(random);
      return boost::json::string(text);
    }
  }
}

// The style of one writer.
struct JsonStyle {
  int indent = 0;  // 0 means one line
  bool has_tabs = false, has_carriage_returns = false;
  std::string item_separator = ", ", key_separator = ": ";
  bool is_ascii = false;          // other characters are written as \u
  bool has_upper_digits = false;  // upper-case digits of \u
  bool escapes_slashes = false;
  // Percentage of characters that are written as \u although they need no escape. Names never escape the ASCII characters that no writer
  // escapes. With `spares_letters`, values do not either.
  int odd_escapes = 0;
  bool spares_letters = false;
  bool has_exponents = false, has_zero_fractions = false;
  bool shuffles = false;

  static JsonStyle random(Random& random) {
    JsonStyle style;
    style.indent = one_in(random, 2) ? 0 : static_cast<int>(1 + below(random, 8));
    style.has_tabs = style.indent > 0 && one_in(random, 4);
    style.has_carriage_returns = style.indent > 0 && one_in(random, 4);
    if (style.indent > 0 || one_in(random, 2)) style.item_separator = ",";
    if (one_in(random, 3)) style.key_separator = one_in(random, 2) ? ":" : " : ";
    style.is_ascii = one_in(random, 2);
    style.has_upper_digits = one_in(random, 2);
    style.escapes_slashes = one_in(random, 3);
    if (one_in(random, 4)) style.odd_escapes = static_cast<int>(below(random, 100));
    style.has_exponents = one_in(random, 3);
    style.has_zero_fractions = one_in(random, 4);
    style.shuffles = one_in(random, 2);
    return style;
  }
};

class JsonWriter {
 public:
  JsonWriter(JsonStyle style, Random& random) : style_(std::move(style)), random_(random) {}

  std::string write(const boost::json::value& value) {
    text_.clear();
    write_value(value, 1);
    return std::move(text_);
  }

 private:
  void break_line(int levels) {
    if (style_.indent == 0) return;
    text_ += style_.has_carriage_returns ? "\r\n" : "\n";
    text_ += std::string(static_cast<std::size_t>(style_.has_tabs ? levels : levels * style_.indent), style_.has_tabs ? '\t' : ' ');
  }
  void write_value(const boost::json::value& value, int levels) {
    if (value.is_string()) return write_text(value.get_string());
    if (value.is_number()) return write_number(value);
    if (value.is_array())
      return write_all(value.get_array(), levels, [&](const boost::json::value& item) { write_value(item, levels + 1); }, "[]");
    if (!value.is_object()) {
      text_ += boost::json::serialize(value);
      return;
    }
    std::vector<const boost::json::key_value_pair*> fields;
    for (const auto& field : value.get_object()) fields.push_back(&field);
    if (style_.shuffles) std::shuffle(fields.begin(), fields.end(), random_);
    const auto write_field = [&](const boost::json::key_value_pair* field) {
      write_text(field->key(), true);
      text_ += style_.key_separator;
      write_value(field->value(), levels + 1);
    };
    write_all(fields, levels, write_field, "{}");
  }
  template <class Items, class Write>
  void write_all(const Items& items, int levels, Write write, std::string_view brackets) {
    text_ += brackets[0];
    bool is_first = true;
    for (const auto& item : items) {
      if (!is_first) text_ += style_.item_separator;
      is_first = false;
      break_line(levels);
      write(item);
    }
    if (!is_first) break_line(levels - 1);
    text_ += brackets[1];
  }
  void write_unit(unsigned unit) { text_ += style_.has_upper_digits ? fmt::format("\\u{:04X}", unit) : fmt::format("\\u{:04x}", unit); }
  void write_text(std::string_view text, bool is_name = false) {
    static constexpr std::string_view kNeedles = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    text_ += '"';
    for (const char32_t c : code_points_of(text)) {
      const std::size_t needle = c < 0x80 ? kNeedles.find(static_cast<char>(c)) : std::string_view::npos;
      const bool is_spared = (is_name || style_.spares_letters) && c < 0x7F && !std::u32string_view(U"\"\\/<>&'+`").contains(c) && c >= ' ';
      if (static_cast<int>(below(random_, 100)) < style_.odd_escapes && c < 0x10000 && !is_spared) {
        write_unit(c);
      } else if (needle != std::string_view::npos) {
        text_ += {'\\', kLetters[needle]};
      } else if (c == '/' && style_.escapes_slashes) {
        text_ += "\\/";
      } else if (c < 0x20 || (c >= 0x7F && style_.is_ascii && c < 0x10000)) {
        write_unit(c);
      } else if (c >= 0x10000 && style_.is_ascii) {
        write_unit(0xD800 + ((c - 0x10000) >> 10));
        write_unit(0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        append_utf8(text_, c);
      }
    }
    text_ += '"';
  }
  // Writes the fewest digits that identify the value. Small and large values get an exponent, like 1e-05.
  void write_number(const boost::json::value& value) {
    if (value.is_double()) {
      text_ += fmt::format("{}", value.get_double());
      return;
    }
    const std::string digits = boost::json::serialize(value);
    const std::size_t zeros = digits.size() - 1 - std::min(digits.find_last_not_of('0'), digits.size() - 1);
    text_ += digits;
    if (style_.has_exponents && zeros > 0 && digits.size() - zeros <= 4) {
      text_.erase(text_.size() - zeros);
      text_ += fmt::format("{}{}", one_in(random_, 2) ? "e" : "E+", zeros);
    } else if (style_.has_zero_fractions && digits.size() < 15) {
      text_ += ".0";
    }
  }

  JsonStyle style_;
  Random& random_;
  std::string text_;
};

}  // namespace quire::test
