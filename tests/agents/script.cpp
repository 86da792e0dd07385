#include "agents/script.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <utility>

#include "format/json.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::string_view kBegin = "<|im_start|>", kEnd = "<|im_end|>", kAssistant = "<|im_start|>assistant\n";
constexpr std::size_t kMaxAnswers = 1000;

std::vector<std::string> texts_of(const json::object& rule, std::string_view name) {
  std::vector<std::string> texts;
  if (const json::value* value = rule.if_contains(name))
    for (const json::value& text : value->as_array()) texts.emplace_back(text.as_string());
  return texts;
}

bool holds_all(std::string_view text, const std::vector<std::string>& parts) {
  return std::ranges::all_of(parts, [&](const std::string& part) { return text.find(part) != std::string_view::npos; });
}

}  // namespace

Result<Script> Script::read(const std::string& path) {
  const auto file = read_json_file(path);
  if (!file) return std::unexpected(file.error());
  Script script;
  try {
    script.otherwise_ = file->at("otherwise").as_string();
    for (const json::value& value : file->at("rules").as_array()) {
      const json::object& rule = value.as_object();
      ScriptRule& added = script.rules_.emplace_back();
      added.has = texts_of(rule, "has");
      added.last = texts_of(rule, "last");
      added.say = rule.at("say").as_string();
      if (const json::value* turn = rule.if_contains("turn")) added.turn = turn->to_number<std::uint32_t>();
    }
  } catch (const std::exception& wrong) {
    return fail(ErrorCode::invalid_argument, "script", wrong.what(), "see tests/agents/script.h");
  }
  return script;
}

const std::string& Script::answer(std::string_view prompt) const {
  std::uint32_t num_turns = 0;
  std::size_t last = 0;
  for (std::size_t at = prompt.find(kAssistant); at != std::string_view::npos; at = prompt.find(kAssistant, at + 1)) {
    if (at + kAssistant.size() == prompt.size()) break;  // the text to answer
    ++num_turns;
    last = at + kAssistant.size();
  }
  const std::size_t end = num_turns == 0 ? 0 : prompt.find(kEnd, last);
  const std::string_view behind = prompt.substr(std::min(end, prompt.size()));
  for (const ScriptRule& rule : rules_)
    if ((!rule.turn || *rule.turn == num_turns) && holds_all(prompt, rule.has) && holds_all(behind, rule.last)) return rule.say;
  return otherwise_;
}

Result<ScriptedModel> ScriptedModel::create(Script script, const Tokenizer& tokenizer) {
  const auto end = tokenizer.find(kEnd);
  const auto opening = tokenizer.encode(kAssistant, {.add_special = false, .parse_special = true});
  if (!end || !tokenizer.find(kBegin) || !opening)
    return fail(ErrorCode::unsupported, "model", "has no ChatML in its vocabulary", "use the default model");
  return ScriptedModel(std::move(script), tokenizer, *opening, *end);
}

TokenId ScriptedModel::next_token(std::span<const TokenId> history) {
  const auto opened = std::ranges::find_end(history, opening_);
  const std::ptrdiff_t first = opened.end() - history.begin();
  std::vector<TokenId> prompt(history.begin(), history.begin() + first);
  if (answers_.size() == kMaxAnswers) answers_.clear();
  auto found = answers_.find(prompt);
  if (found == answers_.end()) {
    auto tokens = tokenizer_->encode(script_.answer(tokenizer_->decode(prompt, false)), {.add_special = false, .parse_special = true});
    found = answers_.emplace(std::move(prompt), tokens.value_or(std::vector<TokenId>{})).first;
  }
  const auto said = static_cast<std::size_t>(std::ssize(history) - first);
  return said < found->second.size() ? found->second[said] : end_;
}

}  // namespace quire
