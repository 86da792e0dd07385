#pragma once
// Reads a JSON object field by field and keeps the first thing that is wrong with it: a field of the wrong type or range, or one that
// nobody asked for. null counts as absent, as OpenAI's clients send it.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// The JSON type and, if short, the value itself: 'string "abc"'.
[[nodiscard]] std::string describe(const boost::json::value& value);

// Text that must be JSON: an object. Errors: `invalid_argument` that tells the byte; at most 64 levels deep. Takes at most
// 8 MiB and 8 bytes for each byte of text, or it is `too_large`.
[[nodiscard]] Result<boost::json::object> parse_object(std::string_view body);

inline constexpr std::size_t kMaxIgnored = 16;

class ObjectReader {
 public:
  // `object` must outlive this; `path` goes before the names in errors ("stream_options."). Names are literals.
  explicit ObjectReader(boost::json::object& object, std::string path = {}) : object_(&object), path_(std::move(path)) {}

  [[nodiscard]] bool boolean(std::string_view name, bool fallback);
  [[nodiscard]] double number(std::string_view name, double fallback);
  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t fallback, std::int64_t least, std::int64_t most);
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most);
  [[nodiscard]] std::string text(std::string_view name, std::string fallback = {});
  // Present and not null; the caller checks the type, and may move from it.
  [[nodiscard]] boost::json::value* find(std::string_view name);

  // Known to clients, without meaning here: any value will do, and finish() names it.
  void ignore(std::string_view name);
  // A part that is left out ("tools[4]:web_search"): finish() names it, too.
  void leave_out(std::string part) { left_out_.push_back(std::move(part)); }
  // Known to clients, not offered here: refused unless it is `neutral` (JSON text) or null.
  void only(std::string_view name, std::string_view neutral, std::string_view remedy);

  void reject(std::string_view name, std::string message, std::string remedy = {}, ErrorCode code = ErrorCode::invalid_argument);
  void reject(Error error);

  // The first error; last of all a field that nobody asked for: it would be no error to leave it out, but may be a slip.
  [[nodiscard]] Result<void> finish();
  // The first error; last of all a field that nobody asked for and whose name is nearly one that is known, unless `is_beta`: such a client
  // knows fields that this server does not. Appends the names of the others, of leave_out() and of ignore() to `ignored`: at most
  // kMaxIgnored of them, with what cannot stand in a header replaced by '?'.
  [[nodiscard]] Result<void> finish(std::vector<std::string>& ignored, bool is_beta = false);
  [[nodiscard]] bool failed() const { return error_.has_value(); }

 private:
  boost::json::object* object_;
  std::string path_;
  [[nodiscard]] bool is_known(std::string_view name) const;
  void add_ignored(std::string_view name, std::vector<std::string>& ignored) const;

  std::vector<std::string_view> known_, hints_;
  std::vector<std::string> left_out_;
  std::optional<Error> error_;
};

}  // namespace quire
