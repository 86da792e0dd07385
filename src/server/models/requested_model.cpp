#include "server/models/requested_model.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <initializer_list>
#include <utility>

#include "server/api/audio/form_data.h"
#include "server/api/ollama/ollama_request.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxTextBytes = 512;  // of the model's name, and of a key

// Receives the values of a body while it is parsed, without a tree of values. Its functions return false to end the parsing.
class FieldHandler {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
  using Code = boost::system::error_code;

  explicit FieldHandler(bool reads_all) : reads_all_(reads_all) {}
  RequestedModel result;

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) { return begin(); }
  bool on_object_end(std::size_t, Code&) { return end(); }
  bool on_array_begin(Code&) { return begin(); }
  bool on_array_end(std::size_t num_values, Code&) {
    if (depth_ == 2 && is_one_of(key_, {"messages", "images", "input"}) && num_values > 0) result.has_input = true;
    return end();
  }
  bool on_key_part(json::string_view part, std::size_t, Code&) { return add_key(part); }
  bool on_key(json::string_view part, std::size_t, Code&) {
    add_key(part);
    if (depth_ == 1) key_ = std::exchange(partial_key_, {});
    partial_key_.clear();
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, Code&) { return add_text(part); }
  bool on_string(json::string_view part, std::size_t, Code& code) {
    add_text(part);
    const std::string text = std::exchange(text_, {});
    if (depth_ != 1) return true;
    if ((key_ == "model" || (reads_all_ && key_ == "name")) && result.model.empty()) result.model = text;
    if (key_ == "keep_alive" && !result.keep_alive_s) result.keep_alive_s = ollama_seconds(text);
    if (is_one_of(key_, {"prompt", "suffix", "input"}) && !text.empty()) result.has_input = true;
    if (reads_all_ || result.model.empty()) return true;
    code = make_error_code(boost::system::errc::operation_canceled);
    return false;
  }
  bool on_number_part(json::string_view, Code&) { return true; }
  bool on_int64(std::int64_t value, json::string_view, Code&) { return number(static_cast<double>(value)); }
  bool on_uint64(std::uint64_t value, json::string_view, Code&) { return number(static_cast<double>(value)); }
  bool on_double(double value, json::string_view, Code&) { return number(value); }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(json::string_view, Code&) { return true; }
  bool on_comment(json::string_view, Code&) { return true; }

 private:
  static bool is_one_of(std::string_view key, std::initializer_list<std::string_view> keys) {
    return std::ranges::find(keys, key) != keys.end();
  }
  bool begin() {
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }
  bool add_key(json::string_view part) {
    if (depth_ == 1 && partial_key_.size() < kMaxTextBytes) partial_key_.append(part.data(), std::min(part.size(), kMaxTextBytes));
    return true;
  }
  bool add_text(json::string_view part) {
    if (depth_ == 1 && text_.size() < kMaxTextBytes) text_.append(part.data(), std::min(part.size(), kMaxTextBytes));
    return true;
  }
  bool number(double value) {
    if (depth_ == 1 && key_ == "keep_alive" && !result.keep_alive_s) result.keep_alive_s = value;
    return true;
  }

  bool reads_all_;
  int depth_ = 0;
  std::string key_, partial_key_, text_;  // the key of the outermost object, and the text that is being read
};

RequestedModel read_form(std::string_view body, std::string_view content_type) {
  RequestedModel requested;
  const auto parts = parse_form(content_type, body);
  if (!parts) return requested;
  for (const FormPart& part : *parts)
    if (part.name == "model" && !part.is_file && requested.model.empty()) requested.model = part.value.substr(0, kMaxTextBytes);
  return requested;
}

}  // namespace

RequestedModel read_requested_model(std::string_view body, std::string_view content_type, bool is_ollama) {
  if (content_type.starts_with("multipart/")) return read_form(body, content_type);
  json::parse_options options;
  options.max_depth = 256;
  options.allow_invalid_utf8 = true;
  json::basic_parser<FieldHandler> parser(options, is_ollama);
  boost::system::error_code ignored;
  parser.write_some(false, body.data(), body.size(), ignored);
  return std::move(parser.handler().result);
}

}  // namespace quire
