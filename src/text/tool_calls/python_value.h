#pragma once
// Reads a Python literal byte by byte and writes it as JSON text.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Accepts strings, numbers, True, False, None, lists, tuples, dicts with strings as keys, and JSON's spellings of words. At most 64 levels
// may be nested.
class PythonValue {
 public:
  enum class State : std::uint8_t {
    open,
    whole,  // the value is complete; this byte, a comma or a closing parenthesis, follows it
    bad
  };

  // Reads a byte. Appends to `json` the text that later bytes cannot change.
  State push(char byte, std::string& json);

 private:
  enum class At : std::uint8_t { value, text, escape, code, word, after_value };

  [[nodiscard]] State push_value(char byte, std::string& json);
  [[nodiscard]] State push_text(char byte, std::string& json);
  [[nodiscard]] State push_escape(char byte, std::string& json);
  [[nodiscard]] State push_code(char byte, std::string& json);
  [[nodiscard]] State push_word(char byte, std::string& json);
  [[nodiscard]] State push_after_value(char byte, std::string& json);
  [[nodiscard]] State close(char byte, std::string& json);
  void separate(std::string& json);
  void drop_half(std::string& json);

  At at_ = At::value;
  std::string nest_;     // open brackets
  bool is_key_ = false;  // the next value is the key of a dict
  bool needs_comma_ = false;
  bool is_empty_ = false;  // the innermost bracket was just opened, or the last byte was a comma
  char quote_ = 0;
  std::size_t code_digits_ = 0;
  std::uint32_t half_ = 0;  // the first half of a surrogate pair, or 0
  std::string word_;        // a number or a name, or the digits of an escape
};

}  // namespace quire
