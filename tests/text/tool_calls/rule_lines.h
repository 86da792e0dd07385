#pragma once
// Splits a grammar for calls into its rules.
#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

namespace quire {

// Returns the lines of a grammar after its header. A schema becomes "%json", and white space counts once.
inline std::vector<std::string> rule_lines(const std::string& grammar) {
  std::istringstream in(grammar);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('%') || line.starts_with("TEXT: ")) continue;
    if (const std::size_t at = line.find("%json"); at != std::string::npos) line.resize(at + 5);
    std::string once;
    for (const char byte : line)
      if (byte != ' ' || !once.ends_with(' ')) once += byte;
    if (once.ends_with(' ')) once.pop_back();
    lines.push_back(once);
  }
  return lines;
}

inline std::string all_rules(const std::string& grammar) {
  std::string text;
  for (const std::string& line : rule_lines(grammar)) text += line + "\n";
  return text;
}

inline bool has_rule(const std::string& grammar, const std::string& line) {
  return std::ranges::count(rule_lines(grammar), line) == 1;
}

}  // namespace quire
