#include "server/http/query.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/url/parse.hpp>
#include <boost/url/pct_string_view.hpp>
#include <boost/url/url_view.hpp>
#include <charconv>
#include <string>

#include "base/nearest_name.h"
#include "server/http/error_response.h"

namespace quire {

std::optional<std::string> decoded_path(std::string_view text) {
  const auto encoded = boost::urls::make_pct_string_view(text);
  return encoded ? std::optional(encoded->decode()) : std::nullopt;
}

namespace {

// Percent-encodes brackets, because clients send `include[]=...` unencoded and RFC 3986 does not allow this.
std::string with_encoded_brackets(std::string_view target) {
  std::string encoded;
  for (const char c : target)
    if (c == '[' || c == ']')
      encoded += c == '[' ? "%5B" : "%5D";
    else
      encoded += c;
  return encoded;
}

}  // namespace

QueryReader::QueryReader(std::string_view target) {
  const std::string encoded = with_encoded_brackets(target);
  const auto url = boost::urls::parse_origin_form(encoded);
  if (!url) {
    reject("", "the query string is not correctly percent-encoded", "percent-encode it");
    return;
  }
  for (const auto& field : url->params())
    if (!field.key.empty()) fields_.emplace_back(field.key, field.value);
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

std::optional<std::uint64_t> QueryReader::integer(std::string_view name) {
  const std::string* text = find(name);
  if (text == nullptr) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (failed != std::errc() || end != text->data() + text->size())
    reject(name, fmt::format("is '{}'", shown(*text)), "send a number such as 8589934592, or leave it out");
  if (std::ranges::count(fields_, name, &std::pair<std::string, std::string>::first) > 1)
    reject(name, "is given more than once", "send it once");
  return value;
}

void QueryReader::reject(std::string_view name, std::string message, std::string remedy) {
  if (!error_) error_ = Error{ErrorCode::invalid_argument, std::string(name), std::move(message), std::move(remedy)};
}

Result<void> QueryReader::finish() {
  for (const auto& [name, value] : fields_) {
    if (std::ranges::count(known_, name) > 0) continue;
    const auto near = nearest_name(name, known_);
    reject(shown(name), "is not a parameter of this endpoint",
           near ? fmt::format("did you mean '{}'?", *near) : fmt::format("known parameters: {}", fmt::join(known_, ", ")));
  }
  if (error_) return std::unexpected(*error_);
  return {};
}

}  // namespace quire
