#pragma once
// A Python literal whose bytes come one by one, as JSON text.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Strings, numbers, True, False, None, lists, tuples, dicts with strings as keys; JSON's own words as well. At most 64 levels deep.
class PythonValue {
 public:
  enum class State : std::uint8_t {
    open,
    whole,  // this byte, a comma or a closing bracket, stands behind the value
    bad
  };

  // Appends what is certain to `json`.
  State push(char byte, std::string& json);

 private:
  enum class At : std::uint8_t { value, text, escape, code, word, behind };

  [[nodiscard]] State push_value(char byte, std::string& json);
  [[nodiscard]] State push_text(char byte, std::string& json);
  [[nodiscard]] State push_escape(char byte, std::string& json);
  [[nodiscard]] State push_code(char byte, std::string& json);
  [[nodiscard]] State push_word(char byte, std::string& json);
  [[nodiscard]] State push_behind(char byte, std::string& json);
  [[nodiscard]] State close(char byte, std::string& json);
  void separate(std::string& json);
  void drop_half(std::string& json);

  At at_ = At::value;
  std::string nest_;     // open brackets
  bool is_key_ = false;  // the next value is the key of a dict
  bool needs_comma_ = false;
  bool is_empty_ = false;  // the innermost bracket has only just opened, or a comma has
  char quote_ = 0;
  std::size_t code_digits_ = 0;
  std::uint32_t half_ = 0;  // of a surrogate pair
  std::string word_;        // a number or a name, or the digits of an escape
};

}  // namespace quire
