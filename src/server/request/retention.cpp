// Called where bodies are read, on any thread. The fields are OpenAI's (prompt_cache_retention: "in_memory" or "24h") and Anthropic's
// (cache_control: {"type": "ephemeral", "ttl": "5m" or "1h"}); quire accepts other times, too.
#include "server/request/retention.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace quire {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMaxRetention_s = std::uint64_t{30} * 86400;
constexpr std::string_view kEphemeral = "5m";

std::optional<std::uint64_t> seconds_of(std::string_view text) {
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || end + 1 != text.data() + text.size() || count > kMaxRetention_s) return std::nullopt;
  switch (*end) {
    case 's':
      return count;
    case 'm':
      return count * 60;
    case 'h':
      return count * 3600;
    case 'd':
      return count * 86400;
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<std::uint32_t> parse_retention(std::string_view text, const std::string& field) {
  if (text == "in_memory" || text == "in-memory") return 0;
  const std::optional<std::uint64_t> seconds = seconds_of(text);
  if (!seconds || *seconds > kMaxRetention_s)
    return fail(ErrorCode::invalid_argument, field, "is " + describe(json::value(text)),
                R"(send a time up to "30d", such as "5m" or "24h")");
  return static_cast<std::uint32_t>(*seconds);
}

Result<std::uint32_t> parse_cache_control(const json::value& value) {
  if (value.is_null()) return 0;
  const std::string field = "cache_control";
  if (!value.is_object())
    return fail(ErrorCode::invalid_argument, field, "must be an object, not " + describe(value), R"(send {"type": "ephemeral"})");
  const json::value* ttl = value.get_object().if_contains("ttl");
  if (ttl == nullptr || ttl->is_null()) return parse_retention(kEphemeral, field);
  if (!ttl->is_string())
    return fail(ErrorCode::invalid_argument, field + ".ttl", "must be a string, not " + describe(*ttl), R"(send "5m" or "1h")");
  return parse_retention(ttl->get_string(), field + ".ttl");
}

std::uint32_t read_retention(ObjectReader& reader) {
  std::uint32_t longest = 0;
  const auto take = [&](const Result<std::uint32_t>& read) {
    if (!read) return reader.reject(read.error());
    longest = std::max(longest, *read);
  };
  if (const std::string asked = reader.text("prompt_cache_retention"); !asked.empty())
    take(parse_retention(asked, "prompt_cache_retention"));
  if (const json::value* control = reader.find("cache_control")) take(parse_cache_control(*control));
  return longest;
}

}  // namespace quire
