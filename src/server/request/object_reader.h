#pragma once
// Reads a JSON object field by field and stores the first error: a field of the wrong type or range, or a field that was never read. A null
// counts as absent, because OpenAI's clients send null for fields that are not set.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/cancellation_point.h"
#include "quire/base/error.h"
#include "server/request/request_fields.h"

namespace quire {

// Returns the JSON type and, if it is short, the value itself: 'string "abc"'.
[[nodiscard]] std::string describe(const boost::json::value& value);

// Returns whether two values are equal; 1 and 1.0 are the same number.
[[nodiscard]] bool same_value(const boost::json::value& a, const boost::json::value& b);

// Parses text that must be a JSON object, at most 64 levels deep. Errors: `invalid_argument` with the position in bytes; `too_large` if the
// values take more than 8 MiB and 8 bytes for each byte of text.
[[nodiscard]] Result<boost::json::object> parse_object(std::string_view body, const CancellationPoint* cancellation = nullptr);

inline constexpr std::size_t kMaxIgnored = 16;

class ObjectReader {
 public:
  // `object` must outlive this object. Errors put `path` before the field names ("stream_options."). Names must be literals, because the
  // reader stores views of them.
  explicit ObjectReader(boost::json::object& object, std::string path = {}) : object_(&object), path_(std::move(path)) {}
  // Reads the complete body of an API. The table of request fields decides about fields that are not read.
  ObjectReader(boost::json::object& object, FieldApi api) : object_(&object), api_(api) {}
  // Reads an object that has fields of such a body, like the options of Ollama's API.
  ObjectReader(boost::json::object& object, std::string path, FieldApi api) : object_(&object), path_(std::move(path)), api_(api) {}

  [[nodiscard]] bool boolean(std::string_view name, bool fallback);
  [[nodiscard]] double number(std::string_view name, double fallback);
  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t fallback, std::int64_t least, std::int64_t most);
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most);
  [[nodiscard]] std::string text(std::string_view name, std::string fallback = {});
  // Returns the field, or null if it is absent or null. The caller checks its type and may move from it.
  [[nodiscard]] boost::json::value* find(std::string_view name);

  // Moves the fields that the API passes unchanged to `chat`, unless `chat` already has them.
  void pass_on(boost::json::object& chat);

  // Accepts a field that clients know but that has no effect here. finish() reports its name.
  void ignore(std::string_view name);
  // Records a part of the body that is dropped ("tools[4]:web_search"). finish() reports it too.
  void leave_out(std::string part) { left_out_.push_back(std::move(part)); }
  // Rejects a field that this server does not support, unless its value is null or `neutral` (JSON text).
  void only(std::string_view name, std::string_view neutral, std::string_view remedy);

  void reject(std::string_view name, std::string message, std::string remedy = {}, ErrorCode code = ErrorCode::invalid_argument);
  void reject(Error error);

  // Returns the first error or, without one, an error for a field that was never read, because it may be a typing error.
  [[nodiscard]] Result<void> finish();
  // Returns the first error or, without one, an error for a field that the table refuses or that is a typing error (misspelt_field()).
  // Fields that a vendor defines are not reported as typing errors. With `is_beta` no field is, because the client may know newer fields.
  // Appends to `ignored` the names from leave_out() and ignore() and the other fields that were never read: at most kMaxIgnored names, with
  // '?' for characters that are not allowed in a header.
  [[nodiscard]] Result<void> finish(std::vector<std::string>& ignored, bool is_beta = false);
  [[nodiscard]] bool failed() const { return error_.has_value(); }

 private:
  boost::json::object* object_;
  std::string path_;
  std::optional<FieldApi> api_;
  [[nodiscard]] bool is_known(std::string_view name) const;
  void finish_field(std::string_view name, const boost::json::value& value, bool is_beta, std::vector<std::string>& ignored);
  void add_ignored(std::string_view name, std::vector<std::string>& ignored) const;

  std::vector<std::string_view> known_, hints_;
  std::vector<std::string> left_out_;
  std::optional<Error> error_;
};

}  // namespace quire
