#include "capi/output_reader.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <utility>

namespace quire {
namespace {

namespace json = boost::json;

std::string text_at(const json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

const json::object* object_at(const json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

// Reads a choice of /v1/completions or /v1/chat/completions, of a stream or of a whole answer.
ReplyOutput read_choice(const json::object& choice) {
  ReplyOutput output;
  output.finish_reason = text_at(choice, "finish_reason");
  output.text = text_at(choice, "text");
  for (const std::string_view key : {"delta", "message"})
    if (const json::object* const message = object_at(choice, key)) output.text += text_at(*message, "content");
  if (const json::value* const index = choice.if_contains("index"); index != nullptr && index->is_number())
    output.choice = index->to_number<std::uint32_t>();
  if (const json::value* const ids = choice.if_contains("token_ids"); ids != nullptr && ids->is_array())
    for (const json::value& id : ids->get_array()) output.tokens.push_back(id.to_number<TokenId>());
  return output;
}

// Returns the error that a document states: {"error": {...}} of OpenAI and Anthropic, or {"error": "text"} of Ollama.
std::optional<ReplyError> read_error(const json::object& document, unsigned status) {
  const json::value* const value = document.if_contains("error");
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (value->is_string()) return ReplyError{status, {}, {}, {}, std::string(value->get_string())};
  if (!value->is_object()) return std::nullopt;
  const json::object& error = value->get_object();
  return ReplyError{status, text_at(error, "type"), text_at(error, "code"), text_at(error, "param"), text_at(error, "message")};
}

}  // namespace

void OutputReader::feed(LocalReplyPart part) {
  if (part.status != 0) status_ = part.status;
  unread_ += part.bytes;
  const bool is_last = part.end != LocalCallEnd::none;
  if (part.content_type.starts_with("text/event-stream")) return read_events(is_last);
  if (part.content_type.starts_with("application/x-ndjson")) return read_lines(is_last);
  if (part.end != LocalCallEnd::complete) return;
  if (part.content_type.starts_with("application/json"))
    read_document(unread_);
  else
    outputs_.push_back({.json = {}, .choice = 0, .text = unread_, .tokens = {}, .finish_reason = {}, .error = {}});
  unread_.clear();
}

std::optional<ReplyError> OutputReader::refusal() const {
  return status_ >= 400 && !outputs_.empty() ? outputs_.front().error : std::nullopt;
}

std::optional<ReplyOutput> OutputReader::next() {
  if (outputs_.empty()) return std::nullopt;
  ReplyOutput output = std::move(outputs_.front());
  outputs_.pop_front();
  return output;
}

// An event is a group of lines that ends with an empty line. Its data are in the line "data: ...".
void OutputReader::read_events(bool is_last) {
  constexpr std::string_view kData = "data: ", kDone = "[DONE]";
  for (std::size_t end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
    const std::string line = unread_.substr(0, end);
    unread_.erase(0, end + 1);
    if (line.starts_with(kData) && line.substr(kData.size()) != kDone) read_document(std::string_view(line).substr(kData.size()));
  }
  if (is_last) unread_.clear();
}

void OutputReader::read_lines(bool is_last) {
  for (std::size_t end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
    const std::string line = unread_.substr(0, end);
    unread_.erase(0, end + 1);
    read_document(line);
  }
  if (is_last) unread_.clear();
}

void OutputReader::read_document(std::string_view text) {
  boost::system::error_code failed;
  const json::value value = json::parse(text, failed);
  const json::object* const document = failed ? nullptr : value.if_object();
  const std::size_t num_before = outputs_.size();
  if (document != nullptr) {
    if (auto error = read_error(*document, status_)) {
      outputs_.emplace_back().error = std::move(error);
    } else if (const json::value* const choices = document->if_contains("choices"); choices != nullptr && choices->is_array()) {
      for (const json::value& choice : choices->get_array())
        if (choice.is_object()) outputs_.push_back(read_choice(choice.get_object()));
    }
  }
  if (outputs_.size() == num_before) outputs_.emplace_back();  // a document without choices, such as the usage
  for (std::size_t i = num_before; i < outputs_.size(); ++i) outputs_[i].json = text;
}

}  // namespace quire
