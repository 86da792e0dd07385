#include "text/tool_calls/template_roles.h"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "text/tool_calls/message_text.h"

namespace quire {

namespace json = boost::json;

namespace {

// Limits the steps of each render, because a template comes with its model, is not trusted, and is rendered a dozen times before the server
// starts.
constexpr std::uint64_t kMaxProbeSteps = 500'000;

// Words that templates do not contain, so each of them in rendered text comes from a message.
constexpr std::string_view kProbeWords[] = {"Qvira", "Zelmo", "Wubri", "Xandu", "Jorfe"};

// Renders short conversations with one word per message.
class Probe {
 public:
  explicit Probe(const ChatTemplate& chat_template) : template_(&chat_template) {
    if (shows({"user"})) return;
    // Some templates render only requests with tools.
    tools_ = one_tool();
    is_useful_ = shows({"user"});
  }

  // Returns false if the template does not show a user's message. In this case nothing can be derived from renders.
  [[nodiscard]] bool is_useful() const { return is_useful_; }

  [[nodiscard]] bool shows(std::initializer_list<std::string_view> roles) const {
    json::array messages;
    for (const std::string_view role : roles) messages.push_back({{"role", role}, {"content", kProbeWords[messages.size()]}});
    const std::size_t num_words = messages.size();
    const auto text = render(std::move(messages), tools_);
    return text && has_words(*text, num_words);
  }

  // Renders a conversation with a call of an earlier answer and its result. Returns nullopt if the template cannot render it.
  [[nodiscard]] std::optional<std::string> with_call(bool has_text, bool is_parted, bool is_text = false) const {
    json::value arguments = json::object{{"k", kProbeWords[4]}};
    if (is_text) arguments = json::value(json::serialize(arguments));
    json::object function{{"name", "f"}, {"arguments", std::move(arguments)}};
    json::object call{{"id", "Qaaaaaaa1"}, {"type", "function"}, {"function", std::move(function)}};
    const std::string_view said = has_text ? kProbeWords[1] : "";
    json::array messages{json::object{{"role", "user"}, {"content", kProbeWords[0]}}};
    if (is_parted) messages.push_back({{"role", "assistant"}, {"content", said}});
    messages.push_back(
        {{"role", "assistant"}, {"content", is_parted ? "" : said}, {"tool_calls", json::array{json::value(std::move(call))}}});
    messages.push_back({{"role", "tool"}, {"tool_call_id", "Qaaaaaaa1"}, {"name", "f"}, {"content", kProbeWords[2]}});
    // Some templates treat text before a call as reasoning and omit it in earlier answers. A separate message must be shown even there.
    if (is_parted) messages.push_back({{"role", "assistant"}, {"content", kProbeWords[3]}});
    if (is_parted) messages.push_back({{"role", "user"}, {"content", "x"}});
    return render(std::move(messages), one_tool());
  }

  static bool has_words(const std::string& text, std::size_t count) {
    return std::all_of(kProbeWords, kProbeWords + count, [&](std::string_view word) { return text.find(word) != std::string::npos; });
  }

 private:
  static json::array one_tool() {
    json::object parameters{{"type", "object"}, {"properties", json::object{{"k", json::object{{"type", "string"}, {"description", ""}}}}}};
    json::object function{{"name", "f"}, {"description", ""}, {"parameters", std::move(parameters)}};
    return {json::object{{"type", "function"}, {"function", std::move(function)}}};
  }

  [[nodiscard]] std::optional<std::string> render(json::array messages, json::value tools) const {
    const json::object context = {{"messages", std::move(messages)},
                                  {"tools", std::move(tools)},
                                  {"add_generation_prompt", true},
                                  {"bos_token", "<s>"},
                                  {"eos_token", "</s>"}};
    auto text = template_->render(context, TemplateOptions{.now_s = 0, .limits = {.max_steps = kMaxProbeSteps}});
    return text ? std::optional(std::move(*text)) : std::nullopt;
  }

  const ChatTemplate* template_;
  json::value tools_ = nullptr;
  bool is_useful_ = true;
};

bool is_instruction(const json::value& message) {
  return message.is_object() && (has_role(message.get_object(), "system") || has_role(message.get_object(), "developer"));
}

bool is_user(const json::value& message) {
  return message.is_object() && has_role(message.get_object(), "user");
}

// Moves instructions to an adjacent message of the user: the previous message or else the next one. If neither is a message of the user,
// adds one.
void move_to_user_message(const std::string& instructions, json::value* next, json::array& kept) {
  if (!kept.empty() && is_user(kept.back()))
    put_after(kept.back().get_object(), instructions);
  else if (next != nullptr && is_user(*next))
    put_before(next->get_object(), instructions);
  else
    kept.push_back({{"role", "user"}, {"content", instructions}});
}

}  // namespace

TemplateRoles find_roles(const ChatTemplate& chat_template, std::string_view source) {
  TemplateRoles roles;
  const bool names_developer = source.find("developer") != std::string_view::npos;
  const Probe probe(chat_template);
  if (!probe.is_useful()) {
    roles.developer = names_developer;
    return roles;
  }
  roles.developer = names_developer && probe.shows({"developer", "user"});
  const std::string_view other = roles.developer ? "developer" : "system";
  roles.system = probe.shows({"system", "user"});
  roles.several_systems = roles.system && probe.shows({"system", "system", "user"}) && probe.shows({"system", other, "user"});
  roles.late_system = roles.system && probe.shows({"system", "user", "assistant", "system", "user"}) &&
                      probe.shows({"system", "user", "assistant", other, "user"});
  roles.several_users = probe.shows({"user", "user"});
  // The words contain no letters that JSON escapes, so they can also be found in calls that the template writes as JSON text.
  auto called = probe.with_call(false, false);
  if (!called) {
    called = probe.with_call(false, false, true);
    roles.text_arguments = called.has_value();
  }
  if (called) roles.calls = called->find(kProbeWords[4]) != std::string::npos;
  const auto beside = probe.with_call(true, false), parted = probe.with_call(true, true);
  roles.parts_text = beside && !Probe::has_words(*beside, 3) && parted && Probe::has_words(*parted, 5);
  return roles;
}

namespace {

bool is_called(const json::object& message) {
  const json::value* calls = message.if_contains("tool_calls");
  return calls != nullptr && calls->is_array() && !calls->get_array().empty();
}

// Adds a message that is not an instruction.
void keep(const TemplateRoles& roles, json::value message, json::array& kept) {
  if (!roles.several_users && is_user(message) && !kept.empty() && is_user(kept.back())) {
    json::object& before = kept.back().get_object();
    json::value* const content = message.get_object().if_contains("content");
    if (content == nullptr || !content->is_array()) return put_after(before, text_of(message.get_object()));
    json::value& joined = before["content"];
    if (!joined.is_array()) joined = json::array{json::object{{"type", "text"}, {"text", text_of(before)}}};
    for (json::value& part : content->get_array()) joined.get_array().push_back(std::move(part));
    return;
  }
  if (roles.parts_text && message.is_object() && is_called(message.get_object()))
    if (const std::string said = text_of(message.get_object()); !said.empty()) {
      kept.push_back({{"role", "assistant"}, {"content", said}});
      message.get_object()["content"] = "";
    }
  kept.push_back(std::move(message));
}

}  // namespace

void adapt_roles(const TemplateRoles& roles, json::array& messages) {
  json::array kept;
  kept.reserve(messages.size() + 1);
  std::string placeless;
  bool is_leading = true;
  for (json::value& message : messages) {
    if (!is_instruction(message)) {
      if (!placeless.empty()) move_to_user_message(std::exchange(placeless, {}), &message, kept);
      is_leading = false;
      keep(roles, std::move(message), kept);
      continue;
    }
    json::object& instruction = message.get_object();
    if (!roles.developer && has_role(instruction, "developer")) instruction["role"] = "system";
    const bool has_place = is_leading ? roles.system || has_role(instruction, "developer") : roles.late_system;
    if (!has_place)
      placeless.append(placeless.empty() ? "" : "\n\n").append(text_of(instruction));
    else if (is_leading && !kept.empty() && !roles.several_systems)
      put_after(kept.back().get_object(), text_of(instruction));
    else
      kept.push_back(std::move(message));
  }
  if (!placeless.empty()) move_to_user_message(placeless, nullptr, kept);
  messages = std::move(kept);
}

}  // namespace quire
