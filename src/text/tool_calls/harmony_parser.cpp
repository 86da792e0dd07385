// Parses an answer in the Harmony format while it streams. Used by the server like every AnswerParser. The prompt ends after
// "<|start|>assistant", so an answer begins within a head: " to=functions.f<|channel|>commentary json<|message|>", or
// "<|channel|>analysis<|message|>". If a model does not follow the format, its text becomes content, and no text is lost. Source:
// https://cookbook.openai.com/articles/openai-harmony
#include "text/tool_calls/harmony_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/harmony_delimiters.h"

namespace quire {
namespace {

using namespace harmony;

constexpr std::size_t kMaxMessageHead = 512;
constexpr std::string_view kRecipient = "to=";
constexpr std::string_view kFunctions = "functions.";

bool begins_delimiter(std::string_view text) {
  return std::ranges::any_of(kDelimiters, [text](std::string_view delimiter) { return delimiter.starts_with(text); });
}

// Returns the word after `key`, or an empty text if `key` does not occur.
std::string_view word_after(std::string_view head, std::string_view key) {
  const std::size_t at = head.find(key);
  if (at == std::string_view::npos) return {};
  head.remove_prefix(at + key.size());
  return head.substr(0, head.find_first_of(" \n\t\r<"));
}

}  // namespace

HarmonyParser::HarmonyParser(const std::vector<Tool>& tools, AnswerParserOptions options)
    : tools_(&tools), options_(options), calls_(parts_, options.max_calls), mode_(options.in_reasoning ? Mode::reasoning : Mode::head) {}

void HarmonyParser::feed(std::string_view text) {
  for (const char byte : text) step(byte);
}

void HarmonyParser::step(char byte) {
  ++num_bytes_;
  held_ += byte;
  while (!held_.empty() && !begins_delimiter(held_)) {
    const char first = held_.front();
    const std::size_t end = num_bytes_ - held_.size() + 1;
    held_.erase(0, 1);
    take_text(first, end);
  }
  if (std::ranges::find(kDelimiters, held_) != kDelimiters.end()) take_delimiter(std::exchange(held_, {}));
}

void HarmonyParser::take_delimiter(std::string_view delimiter) {
  const bool ends = delimiter == kEnd || delimiter == kCall || delimiter == kReturn;
  if (mode_ == Mode::head) return take_head_delimiter(delimiter, ends);
  if (!ends && delimiter != kStart) {
    for (std::size_t i = 1; i <= delimiter.size(); ++i) take_text(delimiter[i - 1], num_bytes_ - delimiter.size() + i);
    return;
  }
  end_message(ends);
  if (delimiter == kStart) take_head_delimiter(delimiter, false);
}

void HarmonyParser::take_head_delimiter(std::string_view delimiter, bool ends) {
  text_end_ = num_bytes_;
  head_ += delimiter;
  head_has_delimiter_ = true;
  if (delimiter == kMessage) return begin_message();
  if (ends) return begin_head();
  if (head_.size() > kMaxMessageHead) reject_head();
}

void HarmonyParser::take_text(char byte, std::size_t end) {
  text_end_ = end;
  switch (mode_) {
    case Mode::head:
      return take_head_text(byte);
    case Mode::reasoning:
      if (std::exchange(has_reasoning_, false)) parts_.add(AnswerPart::Kind::reasoning, "\n");
      return parts_.add(AnswerPart::Kind::reasoning, {&byte, 1});
    case Mode::content:
      return append_text({&byte, 1});
    case Mode::arguments:
      return take_argument(byte);
    case Mode::after_arguments:
      if (is_blank(byte)) return;
      mode_ = Mode::content;
      return append_text({&byte, 1});
  }
}

// Adds a byte to the head. Before its first delimiter, a head may contain only white space and the recipient.
void HarmonyParser::take_head_text(char byte) {
  head_ += byte;
  const std::string_view text = std::string_view(head_).substr(std::min(head_.find_first_not_of(" \n\t\r"), head_.size()));
  const bool may_be_one = head_has_delimiter_ || kRecipient.starts_with(text) || text.starts_with(kRecipient);
  if (!may_be_one || head_.size() > kMaxMessageHead) reject_head();
}

void HarmonyParser::reject_head() {
  mode_ = Mode::content;
  append_text(std::exchange(head_, {}));
}

void HarmonyParser::begin_head() {
  mode_ = Mode::head;
  head_.clear();
  head_has_delimiter_ = false;
}

std::string HarmonyParser::called_function() const {
  if (options_.max_calls == 0) return {};
  std::string_view recipient = word_after(head_, kRecipient);
  if (recipient.starts_with(kFunctions)) return std::string(recipient.substr(kFunctions.size()));
  return find_tool(*tools_, recipient) == nullptr ? std::string() : std::string(recipient);
}

void HarmonyParser::begin_message() {
  name_ = called_function();
  raw_.clear();
  mode_ = !name_.empty() ? Mode::arguments : word_after(head_, kChannel) == "analysis" ? Mode::reasoning : Mode::content;
}

void HarmonyParser::take_argument(char byte) {
  const bool is_first = std::ranges::all_of(raw_, is_blank);
  raw_ += byte;
  if (is_first && is_blank(byte)) return;
  if (is_first) object_ = JsonObject();
  if (is_first && byte == '{') calls_.begin(name_);
  const JsonState state = calls_.is_open() || calls_.is_dropping() ? object_.push(byte) : JsonState::bad;
  if (state == JsonState::bad) return reject_call();
  calls_.arguments({&byte, 1});
  if (state == JsonState::open) return;
  calls_.end();
  mode_ = Mode::after_arguments;
}

void HarmonyParser::reject_call() {
  const bool is_dropped = calls_.is_dropping();
  calls_.reject_call();
  mode_ = is_dropped ? Mode::after_arguments : Mode::content;
  if (!is_dropped) append_text(raw_);
}

void HarmonyParser::end_message(bool by_delimiter, bool is_truncated) {
  if (mode_ == Mode::arguments && is_truncated)
    calls_.cut();
  else if (mode_ == Mode::arguments && !std::ranges::all_of(raw_, is_blank))
    reject_call();
  // An empty message is a call without arguments.
  if (mode_ == Mode::arguments && by_delimiter) {
    calls_.begin(name_);
    calls_.arguments("{}");
    calls_.end();
  }
  has_reasoning_ = has_reasoning_ || mode_ == Mode::reasoning;
  has_messages_ = true;
  begin_head();
}

void HarmonyParser::finish(bool is_truncated) {
  // The held bytes begin a delimiter. At a truncated end they are dropped, except a single byte without an earlier call, which may be text.
  if (is_truncated && held_.size() > (calls_.num_read() > 0 ? 0U : 1U)) held_.clear();
  for (; !held_.empty(); held_.erase(0, 1)) take_text(held_.front(), num_bytes_ - held_.size() + 1);
  if (mode_ != Mode::head) return end_message(false, is_truncated);
  const bool is_text = !head_has_delimiter_ && !(has_messages_ && std::ranges::all_of(head_, is_blank));
  if (is_text && !head_.empty()) reject_head();
}

}  // namespace quire
