#include "text/tool_calls/call_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tool_calls/message_text.h"

namespace quire {

namespace json = boost::json;

namespace {

json::array* calls_of(json::value& message) {
  json::value* const calls = message.is_object() ? message.get_object().if_contains("tool_calls") : nullptr;
  return calls != nullptr && calls->is_array() && !calls->get_array().empty() ? &calls->get_array() : nullptr;
}

std::string text_at(const json::value& object, std::string_view name) {
  const json::value* text = object.is_object() ? object.get_object().if_contains(name) : nullptr;
  return text != nullptr && text->is_string() ? std::string(text->get_string()) : std::string();
}

bool is_result(const json::value& message) {
  return message.is_object() && has_role(message.get_object(), "tool");
}

// The calls of one message and their results. results()[i] lists the results of call i as indices of messages.
class Round {
 public:
  explicit Round(const json::array& calls) : results_(calls.size()) {
    for (std::size_t i = calls.size(); i-- > 0;) {  // in reverse, because results take calls from the back
      if (const std::string id = text_at(calls[i], "id"); !id.empty()) by_id_[id].push_back(i);
      const json::value* function = calls[i].is_object() ? calls[i].get_object().if_contains("function") : nullptr;
      if (function != nullptr) by_name_[text_at(*function, "name")].push_back(i);
    }
  }

  [[nodiscard]] const std::vector<std::vector<std::size_t>>& results() const { return results_; }

  // Assigns a result to the call with this id. Returns false if no call has this id.
  bool assign_by_id(std::size_t result, const std::string& id) { return assign_by(by_id_, result, id); }
  // Assigns a result to the first call of this function that has no result. If all have results, assigns it to the next call of any
  // function without a result, or else to the last call.
  void assign_in_order(std::size_t result, const std::string& name) {
    if (const auto named = by_name_.find(name); named != by_name_.end()) {
      std::vector<std::size_t>& calls = named->second;
      while (!calls.empty() && !results_[calls.back()].empty()) calls.pop_back();
      if (!calls.empty()) return results_[calls.back()].push_back(result);
    }
    while (next_ + 1 < results_.size() && !results_[next_].empty()) ++next_;
    results_[next_].push_back(result);
  }

 private:
  using Index = std::unordered_map<std::string, std::vector<std::size_t>>;

  // Assigns a result to the first call with this key that has no result, or else to the last call with this key.
  bool assign_by(Index& index, std::size_t result, const std::string& key) {
    const auto found = index.find(key);
    if (found == index.end()) return false;
    std::vector<std::size_t>& calls = found->second;
    while (calls.size() > 1 && !results_[calls.back()].empty()) calls.pop_back();
    results_[calls.back()].push_back(result);
    return true;
  }

  std::vector<std::vector<std::size_t>> results_;
  Index by_id_, by_name_;
  std::size_t next_ = 0;
};

// The rounds of a conversation by the index of their message, and which messages are results of a round.
class Rounds {
 public:
  explicit Rounds(json::array& messages) : taken_(messages.size()) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const json::array* calls = calls_of(messages[i]);
      if (calls == nullptr) continue;
      rounds_.emplace(i, Round(*calls));
      for (const json::value& call : *calls)
        if (const std::string id = text_at(call, "id"); !id.empty()) round_of_id_[id] = i;
      std::size_t end = i + 1;
      while (end < messages.size() && is_result(messages[end])) ++end;
      assign_results(messages, i, end);
      i = end - 1;
    }
  }

  [[nodiscard]] const Round* find(std::size_t message) const {
    const auto found = rounds_.find(message);
    return found == rounds_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] bool is_taken(std::size_t message) const { return taken_[message]; }

 private:
  void assign_results(const json::array& messages, std::size_t round, std::size_t end) {
    std::vector<std::size_t> others;
    for (std::size_t i = round + 1; i < end; ++i) {
      taken_[i] = true;
      const std::string id = text_at(messages[i], "tool_call_id");
      const auto earlier = round_of_id_.find(id);
      if (earlier == round_of_id_.end() || !rounds_.at(earlier->second).assign_by_id(i, id)) others.push_back(i);
    }
    for (const std::size_t i : others) rounds_.at(round).assign_in_order(i, text_at(messages[i], "name"));
  }

  std::unordered_map<std::size_t, Round> rounds_;
  std::unordered_map<std::string, std::size_t> round_of_id_;  // the latest round with this id
  std::vector<bool> taken_;
};

}  // namespace

void gather_results(json::array& messages) {
  std::unordered_map<std::string, std::size_t> round_of_id;
  std::unordered_map<std::size_t, std::vector<std::size_t>> late;  // results by the index of their round's message
  std::vector<bool> is_late(messages.size());
  bool is_in_run = false, has_round = false;
  std::size_t last_round = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (const json::array* calls = calls_of(messages[i])) {
      is_in_run = has_round = true;
      last_round = i;
      for (const json::value& call : *calls) round_of_id[text_at(call, "id")] = i;
    } else if (!is_result(messages[i])) {
      is_in_run = false;
    } else if (!is_in_run && has_round) {
      const auto named = round_of_id.find(text_at(messages[i], "tool_call_id"));
      late[named == round_of_id.end() ? last_round : named->second].push_back(i);
      is_late[i] = true;
    }
  }
  if (late.empty()) return;
  json::array gathered;
  for (std::size_t i = 0, round = messages.size(); i < messages.size(); ++i) {
    if (is_late[i]) continue;
    if (calls_of(messages[i]) != nullptr) round = i;
    gathered.push_back(std::move(messages[i]));
    if (i + 1 < messages.size() && is_result(messages[i + 1]) && !is_late[i + 1]) continue;
    if (const auto found = late.find(round); found != late.end())
      for (const std::size_t result : std::exchange(found->second, {})) gathered.push_back(std::move(messages[result]));
  }
  messages = std::move(gathered);
}

void fill_ids(json::array& messages, bool is_kimi) {
  const Rounds rounds(messages);
  std::size_t number = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Round* const round = rounds.find(i);
    if (round == nullptr) continue;
    json::array& calls = *calls_of(messages[i]);
    for (std::size_t k = 0; k < calls.size(); ++k, ++number) {
      if (!calls[k].is_object()) continue;
      std::string id = text_at(calls[k], "id");
      if (id.empty()) {
        const json::value* function = calls[k].get_object().if_contains("function");
        id = is_kimi && function != nullptr ? fmt::format("functions.{}:{}", text_at(*function, "name"), number)
                                            : fmt::format("call_{}", number);
        calls[k].get_object()["id"] = id;
      }
      for (const std::size_t result : round->results()[k])
        if (text_at(messages[result], "tool_call_id").empty()) messages[result].get_object()["tool_call_id"] = id;
    }
  }
}

void split_calls(json::array& messages) {
  const Rounds rounds(messages);
  json::array parted;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Round* const round = rounds.find(i);
    if (round == nullptr) {
      if (!rounds.is_taken(i)) parted.push_back(std::move(messages[i]));
      continue;
    }
    json::array calls = std::move(*calls_of(messages[i]));
    json::object message = std::move(messages[i].get_object());
    // The template shows the reasoning before a call from the field "thinking".
    if (const json::value* thought = message.if_contains("reasoning_content"); thought != nullptr && text_of(message).empty())
      message.emplace("thinking", json::value(*thought));
    if (text_of(message).empty()) message.stable_erase("content");
    for (std::size_t k = 0; k < calls.size(); ++k) {
      message["tool_calls"] = json::array{std::move(calls[k])};
      parted.push_back(std::exchange(message, json::object{{"role", "assistant"}}));
      for (const std::size_t result : round->results()[k]) parted.push_back(std::move(messages[result]));
    }
  }
  messages = std::move(parted);
}

}  // namespace quire
