// Parses JSON from clients within limits of depth and memory, and reads it field by field. The first error of a body names its field. All
// state is in the reader, so any thread may use this code.
#include "server/request/object_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/memory_resource.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/stream_parser.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <new>

#include "base/nearest_name.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxShownBytes = 60;
constexpr std::size_t kMaxNameBytes = 100;
// Limit for the memory of parsed values. A one-digit number in an array takes 8 bytes per byte of text, and during parsing another 16.
// Token ids of a long prompt take half of that.
constexpr std::size_t kParsedBytesPerByte = 8;
constexpr std::size_t kMinParsedBytes = 8 << 20;
constexpr std::size_t kParsedAtOnce = 256 << 10;  // bytes between two cancellation points: some milliseconds

// Limits the memory that the parser can allocate, because a body of many tiny values may need many times its size.
class BoundedMemory final : public json::memory_resource {
 public:
  // `left` is the number of bytes that may still be allocated. It is shared because Boost.JSON wraps the resource in another object.
  explicit BoundedMemory(std::shared_ptr<std::size_t> left) : left_(std::move(left)) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t /*alignment*/) override {
    if (bytes > *left_) throw std::bad_alloc();
    *left_ -= bytes;
    return ::operator new(bytes);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t /*alignment*/) override {
    *left_ += bytes;
    ::operator delete(memory);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::shared_ptr<std::size_t> left_;
};

const char* kind_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "boolean";
    case json::kind::int64:
    case json::kind::uint64:
      return "integer";
    case json::kind::double_:
      return "number";
    case json::kind::string:
      return "string";
    case json::kind::array:
      return "array";
    case json::kind::object:
      return "object";
  }
  return "value";
}

// Returns whether the value contains an infinity. Values with an infinity are refused, because JSON cannot represent infinity in an answer.
// Recurses at most kMaxDepth levels.
bool has_infinity(const json::value& value) {
  if (value.is_double()) return std::isinf(value.get_double());
  if (value.is_array()) return std::ranges::any_of(value.get_array(), has_infinity);
  return value.is_object() && std::ranges::any_of(value.get_object(), [](const auto& field) { return has_infinity(field.value()); });
}

}  // namespace

bool same_value(const json::value& a, const json::value& b) {
  return a.is_number() && b.is_number() ? a.to_number<double>() == b.to_number<double>() : a == b;
}

std::string describe(const json::value& value) {
  if (value.is_array() || value.is_object()) return kind_name(value);
  const std::string shown = json::serialize(value);
  return shown.size() > kMaxShownBytes ? std::string(kind_name(value)) : fmt::format("{} {}", kind_name(value), shown);
}

Result<json::object> parse_object(std::string_view body, const CancellationPoint* cancellation) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  const auto left = std::make_shared<std::size_t>(kMinParsedBytes + kParsedBytesPerByte * body.size());
  const json::storage_ptr storage = json::make_shared_resource<BoundedMemory>(left);
  json::stream_parser parser(storage, options);
  parser.reset(storage);
  json::error_code code;
  std::size_t read = 0;
  std::optional<json::value> value;  // not assigned, because assignment would copy the value out of the limited memory
  try {
    while (read < body.size() && !code && !parser.done()) {
      pass(cancellation);
      read += parser.write_some(body.data() + read, std::min(kParsedAtOnce, body.size() - read), code);
    }
    const bool only_space_left = body.find_first_not_of(" \t\r\n", read) == std::string_view::npos;
    if (!code && !only_space_left) code = json::error::extra_data;
    if (!code) parser.finish(code);
    if (!code) value.emplace(parser.release());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::too_large, "", fmt::format("the body of {} bytes has too many values", body.size()),
                "send fewer values in a request");
  }
  *left = std::numeric_limits<std::size_t>::max() / 2;  // no limit after parsing: the values may be copied and changed
  if (code == json::error::too_deep) {
    return fail(ErrorCode::invalid_argument, "", fmt::format("the body is nested more than {} levels deep", kMaxDepth),
                "send JSON with fewer levels");
  }
  if (code || !value) {
    return fail(ErrorCode::invalid_argument, "", fmt::format("the body is not JSON: {} at byte {}", code.message(), read),
                "send a JSON object in UTF-8");
  }
  if (!value->is_object())
    return fail(ErrorCode::invalid_argument, "", fmt::format("the body is a JSON {}", kind_name(*value)), "send a JSON object");
  for (const json::key_value_pair& field : value->get_object())
    if (has_infinity(field.value()))
      return fail(ErrorCode::invalid_argument, std::string(std::string_view(field.key()).substr(0, kMaxNameBytes)),
                  "is or contains a number outside the range of 64-bit floats", "send numbers up to 1.7e308");
  return std::move(value->get_object());
}

json::value* ObjectReader::find(std::string_view name) {
  known_.push_back(name);
  json::value* value = object_->if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ObjectReader::boolean(std::string_view name, bool fallback) {
  const json::value* value = find(name);
  if (value == nullptr) return fallback;
  if (value->is_bool()) return value->get_bool();
  reject(name, fmt::format("must be a boolean, not {}", describe(*value)), "send true or false");
  return fallback;
}

double ObjectReader::number(std::string_view name, double fallback) {
  const json::value* value = find(name);
  if (value == nullptr) return fallback;
  if (value->is_number()) return value->to_number<double>();
  reject(name, fmt::format("must be a number, not {}", describe(*value)));
  return fallback;
}

std::optional<std::int64_t> ObjectReader::integer(std::string_view name, std::int64_t least, std::int64_t most) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  std::optional<std::int64_t> number;
  if (value->is_int64()) number = value->get_int64();
  // A number like 16.0 counts as an integer in JSON.
  if (value->is_double() && std::trunc(value->get_double()) == value->get_double() && std::abs(value->get_double()) < 9e15)
    number = static_cast<std::int64_t>(value->get_double());
  if (!number && !value->is_uint64()) {
    reject(name, fmt::format("must be an integer, not {}", describe(*value)));
    return std::nullopt;
  }
  if (number && *number >= least && *number <= most) return number;
  reject(name, fmt::format("is {}", json::serialize(*value)), fmt::format("use {} to {}", least, most));
  return std::nullopt;
}

std::int64_t ObjectReader::integer(std::string_view name, std::int64_t fallback, std::int64_t least, std::int64_t most) {
  return integer(name, least, most).value_or(fallback);
}

std::string ObjectReader::text(std::string_view name, std::string fallback) {
  const json::value* value = find(name);
  if (value == nullptr) return fallback;
  if (value->is_string()) return std::string(value->get_string());
  reject(name, fmt::format("must be a string, not {}", describe(*value)));
  return fallback;
}

void ObjectReader::only(std::string_view name, std::string_view neutral, std::string_view remedy) {
  const json::value* value = find(name);
  if (value == nullptr || same_value(*value, json::parse(neutral))) return;
  reject(name, fmt::format("is not supported by this server, except as {}", neutral), std::string(remedy), ErrorCode::unsupported);
}

void ObjectReader::reject(std::string_view name, std::string message, std::string remedy, ErrorCode code) {
  reject(Error{code, path_ + std::string(name), std::move(message), std::move(remedy)});
}

void ObjectReader::reject(Error error) {
  if (!error_) error_ = std::move(error);
}

bool ObjectReader::is_known(std::string_view name) const {
  return std::ranges::find(known_, name) != known_.end();
}

void ObjectReader::ignore(std::string_view name) {
  if (find(name) != nullptr) hints_.push_back(name);
}

Result<void> ObjectReader::finish() {
  for (const auto& [key, value] : *object_) {
    if (error_) break;
    const std::string_view name(key.data(), key.size());
    if (is_known(name)) continue;
    const auto nearest = nearest_name(name, known_);
    reject(name.substr(0, kMaxNameBytes), "is not a field of this request",
           nearest ? fmt::format("did you mean '{}'?", *nearest) : "remove it");
  }
  if (error_) return std::unexpected(*error_);
  return {};
}

void ObjectReader::add_ignored(std::string_view name, std::vector<std::string>& ignored) const {
  if (ignored.size() == kMaxIgnored) return;
  std::string& shown = ignored.emplace_back(path_ + std::string(name.substr(0, kMaxNameBytes)));
  std::ranges::replace_if(shown, [](char c) { return c <= ' ' || c >= '\x7F' || c == ','; }, '?');
}

void ObjectReader::finish_field(std::string_view name, const json::value& value, bool is_beta, std::vector<std::string>& ignored) {
  const RequestField* const field = find_request_field(name);
  if (field != nullptr && api_ && field->use(*api_) == FieldUse::refused) {
    if (field->is_neutral(value)) return;
    Error refusal = refused_field(*field, value);
    refusal.field.insert(0, path_);
    return reject(std::move(refusal));
  }
  if (ignored.size() == kMaxIgnored) return;  // typing errors are then not checked either, because each check compares all names
  if (field == nullptr && !is_beta) {
    constexpr std::size_t kShortWithin = 5;  // nested objects have few fields, so short names are compared too
    const std::string_view meant = api_ ? misspelt_field(name, fields_read_by(*api_)) : misspelt_field(name, known_, kShortWithin);
    if (!meant.empty())
      return reject(name.substr(0, kMaxNameBytes), "is not a field of this request", fmt::format("did you mean '{}'?", meant));
  }
  add_ignored(name, ignored);
}

Result<void> ObjectReader::finish(std::vector<std::string>& ignored, bool is_beta) {
  for (const std::string_view hint : hints_) add_ignored(hint, ignored);
  for (const std::string& part : left_out_) add_ignored(part, ignored);
  for (const auto& [key, value] : *object_)
    if (!is_known(key) && !value.is_null()) finish_field(key, value, is_beta, ignored);
  if (error_) return std::unexpected(*error_);
  return {};
}

void ObjectReader::pass_on(json::object& chat) {
  for (auto& [key, value] : *object_) {
    const RequestField* const field = find_request_field(key);
    if (field == nullptr || value.is_null() || field->use(*api_) != FieldUse::passed) continue;
    known_.push_back(field->name);
    chat.emplace(field->name, std::move(value));
  }
}

}  // namespace quire
