#include "server/query.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/object_reader.h"
#include "text/utf8.h"

namespace quire {

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// As browsers send forms: '+' is a space; a '%' without two digits stays as it is.
std::string decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0;
    if (escaped) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

// Bytes from outside, fit for a message.
std::string shown(const std::string& text) {
  return repair_utf8(text.substr(0, 100));
}

}  // namespace

QueryReader::QueryReader(std::string_view target) {
  const std::size_t question = target.find('?');
  std::string_view rest = question == std::string_view::npos ? std::string_view() : target.substr(question + 1);
  rest = rest.substr(0, rest.find('#'));
  while (!rest.empty()) {
    const std::string_view field = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), field.size() + 1));
    if (field.empty()) continue;
    const std::size_t equals = field.find('=');
    fields_.emplace_back(decode(field.substr(0, equals)),
                         equals == std::string_view::npos ? std::string() : decode(field.substr(equals + 1)));
  }
}

const std::string* QueryReader::find(std::string_view name) {
  known_.push_back(name);
  const auto last = std::find_if(fields_.rbegin(), fields_.rend(), [name](const auto& field) { return field.first == name; });
  return last == fields_.rend() ? nullptr : &last->second;
}

std::string QueryReader::text(std::string_view name, std::string_view fallback) {
  const std::string* value = find(name);
  return value == nullptr ? std::string(fallback) : *value;
}

bool QueryReader::boolean(std::string_view name, bool fallback) {
  static constexpr std::array<std::string_view, 4> kTrue = {"true", "1", "yes", "on"}, kFalse = {"false", "0", "no", "off"};
  const std::string* value = find(name);
  if (value == nullptr) return fallback;
  std::string lower = *value;
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (std::ranges::count(kTrue, lower) > 0) return true;
  if (std::ranges::count(kFalse, lower) == 0) reject(name, fmt::format("is '{}'", shown(*value)), "use true or false");
  return false;
}

void QueryReader::reject(std::string_view name, std::string message, std::string remedy) {
  if (!error_) error_ = Error{ErrorCode::invalid_argument, std::string(name), std::move(message), std::move(remedy)};
}

Result<void> QueryReader::finish() {
  for (const auto& [name, value] : fields_) {
    if (std::ranges::count(known_, name) > 0) continue;
    const auto near = nearest_name(name, known_);
    reject(shown(name), "is not a parameter of this endpoint",
           near ? fmt::format("did you mean '{}'?", *near) : fmt::format("it knows {}", fmt::join(known_, ", ")));
  }
  if (error_) return std::unexpected(*error_);
  return {};
}

}  // namespace quire
