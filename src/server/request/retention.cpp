// Called where bodies are read, on any thread. The fields are OpenAI's (prompt_cache_retention: "in_memory" or "24h") and Anthropic's
// (cache_control: {"type": "ephemeral", "ttl": "5m" or "1h"}); quire accepts other times, too.
#include "server/request/retention.h"

#include <fmt/format.h>

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

// Reads the cache_control of each object in an array. Other values are checked elsewhere.
class PartReader {
 public:
  explicit PartReader(ObjectReader& reader) : reader_(&reader) {}

  [[nodiscard]] std::uint32_t longest() const { return longest_; }

  void read(const json::value* parts, const std::string& path, bool has_content) {
    if (parts == nullptr || !parts->is_array()) return;
    for (std::size_t i = 0; i < parts->get_array().size(); ++i) {
      const json::object* part = parts->get_array()[i].if_object();
      if (part == nullptr) continue;
      const std::string at = fmt::format("{}[{}]", path, i);
      if (const json::value* control = part->if_contains("cache_control")) take(parse_cache_control(*control), at);
      if (has_content) read(part->if_contains("content"), at + ".content", false);
    }
  }

 private:
  void take(Result<std::uint32_t> asked, const std::string& at) {
    longest_ = std::max(longest_, asked.value_or(0));
    if (asked) return;
    asked.error().field.insert(0, at + ".");
    reader_->reject(std::move(asked.error()));
  }

  ObjectReader* reader_;
  std::uint32_t longest_ = 0;
};

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

std::uint32_t read_part_retention(ObjectReader& reader) {
  PartReader parts(reader);
  parts.read(reader.find("messages"), "messages", true);
  parts.read(reader.find("tools"), "tools", false);
  return parts.longest();
}

}  // namespace quire
