// Takes an answer in the Harmony format apart while it streams. Called like every AnswerParser. The prompt ends behind
// "<|start|>assistant", so an answer begins within a head: " to=functions.f<|channel|>commentary json<|message|>", or
// "<|channel|>analysis<|message|>". What a model writes that does not know the format is text, and none of it is lost. Source:
// https://cookbook.openai.com/articles/openai-harmony
#include "text/tool_calls/harmony_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/harmony_marks.h"

namespace quire {
namespace {

using namespace harmony;

constexpr std::size_t kMaxMessageHead = 512;
constexpr std::string_view kRecipient = "to=";
constexpr std::string_view kFunctions = "functions.";

bool begins_mark(std::string_view text) {
  return std::ranges::any_of(kMarks, [text](std::string_view mark) { return mark.starts_with(text); });
}

// The word behind `key`; empty where there is none.
std::string_view word_behind(std::string_view head, std::string_view key) {
  const std::size_t at = head.find(key);
  if (at == std::string_view::npos) return {};
  head.remove_prefix(at + key.size());
  return head.substr(0, head.find_first_of(" \n\t\r<"));
}

}  // namespace

HarmonyParser::HarmonyParser(const std::vector<Tool>& tools, AnswerParserOptions options)
    : tools_(&tools), options_(options), calls_(parts_, options.max_calls), mode_(options.in_thought ? Mode::thought : Mode::head) {}

void HarmonyParser::feed(std::string_view text) {
  for (const char byte : text) step(byte);
}

void HarmonyParser::step(char byte) {
  ++num_bytes_;
  held_ += byte;
  while (!held_.empty() && !begins_mark(held_)) {
    const char first = held_.front();
    const std::size_t end = num_bytes_ - held_.size() + 1;
    held_.erase(0, 1);
    take_text(first, end);
  }
  if (std::ranges::find(kMarks, held_) != kMarks.end()) take_mark(std::exchange(held_, {}));
}

void HarmonyParser::take_mark(std::string_view mark) {
  const bool ends = mark == kEnd || mark == kCall || mark == kReturn;
  if (mode_ == Mode::head) return take_head_mark(mark, ends);
  if (!ends && mark != kStart) {
    for (std::size_t i = 1; i <= mark.size(); ++i) take_text(mark[i - 1], num_bytes_ - mark.size() + i);
    return;
  }
  end_message(ends);
  if (mark == kStart) take_head_mark(mark, false);
}

void HarmonyParser::take_head_mark(std::string_view mark, bool ends) {
  text_end_ = num_bytes_;
  head_ += mark;
  head_has_mark_ = true;
  if (mark == kMessage) return begin_message();
  if (ends) return begin_head();
  if (head_.size() > kMaxMessageHead) is_no_head();
}

void HarmonyParser::take_text(char byte, std::size_t end) {
  text_end_ = end;
  switch (mode_) {
    case Mode::head:
      return take_head_text(byte);
    case Mode::thought:
      if (std::exchange(has_thoughts_, false)) parts_.add(AnswerPart::Kind::reasoning, "\n");
      return parts_.add(AnswerPart::Kind::reasoning, {&byte, 1});
    case Mode::said:
      return say({&byte, 1});
    case Mode::arguments:
      return take_argument(byte);
    case Mode::behind:
      if (is_blank(byte)) return;
      mode_ = Mode::said;
      return say({&byte, 1});
  }
}

// Until a mark comes, a head is white space and whom the message is for.
void HarmonyParser::take_head_text(char byte) {
  head_ += byte;
  const std::string_view text = std::string_view(head_).substr(std::min(head_.find_first_not_of(" \n\t\r"), head_.size()));
  const bool may_be_one = head_has_mark_ || kRecipient.starts_with(text) || text.starts_with(kRecipient);
  if (!may_be_one || head_.size() > kMaxMessageHead) is_no_head();
}

void HarmonyParser::is_no_head() {
  mode_ = Mode::said;
  say(std::exchange(head_, {}));
}

void HarmonyParser::begin_head() {
  mode_ = Mode::head;
  head_.clear();
  head_has_mark_ = false;
}

std::string HarmonyParser::called() const {
  if (options_.max_calls == 0) return {};
  std::string_view recipient = word_behind(head_, kRecipient);
  if (recipient.starts_with(kFunctions)) return std::string(recipient.substr(kFunctions.size()));
  return find_tool(*tools_, recipient) == nullptr ? std::string() : std::string(recipient);
}

void HarmonyParser::begin_message() {
  name_ = called();
  raw_.clear();
  mode_ = !name_.empty() ? Mode::arguments : word_behind(head_, kChannel) == "analysis" ? Mode::thought : Mode::said;
}

void HarmonyParser::take_argument(char byte) {
  const bool is_first = std::ranges::all_of(raw_, is_blank);
  raw_ += byte;
  if (is_first && is_blank(byte)) return;
  if (is_first) object_ = JsonObject();
  if (is_first && byte == '{') calls_.begin(name_);
  const JsonState state = calls_.is_open() ? object_.push(byte) : JsonState::bad;
  if (state == JsonState::bad) return give_up();
  calls_.arguments({&byte, 1});
  if (state == JsonState::open) return;
  calls_.end();
  mode_ = Mode::behind;
}

void HarmonyParser::give_up() {
  calls_.give_up();
  mode_ = Mode::said;
  say(raw_);
}

void HarmonyParser::end_message(bool by_mark) {
  if (mode_ == Mode::arguments && !std::ranges::all_of(raw_, is_blank)) give_up();
  // Nothing stands for no arguments.
  if (mode_ == Mode::arguments && by_mark) {
    calls_.begin(name_);
    calls_.arguments("{}");
    calls_.end();
  }
  has_thoughts_ = has_thoughts_ || mode_ == Mode::thought;
  has_messages_ = true;
  begin_head();
}

void HarmonyParser::finish() {
  for (; !held_.empty(); held_.erase(0, 1)) take_text(held_.front(), num_bytes_ - held_.size() + 1);
  if (mode_ != Mode::head) return end_message(false);
  const bool is_text = !head_has_mark_ && !(has_messages_ && std::ranges::all_of(head_, is_blank));
  if (is_text && !head_.empty()) is_no_head();
}

}  // namespace quire
