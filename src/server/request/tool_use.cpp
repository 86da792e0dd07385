// Reads tools, tool_choice and parallel_tool_calls of a chat into ToolUse. Runs where the body is read, on the server's thread or in the
// job pool. Restricts the characters in names of tools, because names are written into grammars and answers.
#include "server/request/tool_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/nearest_name.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxToolNameBytes = 128;

bool is_tool_name(std::string_view name) {
  const auto is_good = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-.:/").find(static_cast<char>(c)) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kMaxToolNameBytes && std::ranges::all_of(name, is_good);
}

Error wrong_tool(std::size_t index, std::string_view field, std::string message, std::string remedy = {},
                 ErrorCode code = ErrorCode::invalid_argument) {
  return Error{code, fmt::format("tools[{}]{}", index, field), std::move(message), std::move(remedy)};
}

// Converts a function in the format of the Responses API, {"type": "function", "name": ...}, or of Anthropic to the format of chats, which
// has the name and other fields in "function".
void nest_function(json::value& tool) {
  if (!tool.is_object() || tool.get_object().contains("function") || !tool.get_object().contains("name")) return;
  json::object& fields = tool.get_object();
  json::object function;
  for (const auto& [flat, nested] :
       {std::pair("name", "name"), std::pair("description", "description"), std::pair("parameters", "parameters"),
        std::pair("input_schema", "parameters"), std::pair("strict", "strict")}) {
    json::value* value = fields.if_contains(flat);
    if (value == nullptr) continue;
    function.emplace(nested, std::move(*value));
    fields.erase(flat);
  }
  fields.insert_or_assign("type", "function");
  fields.emplace("function", std::move(function));
}

Result<Tool> read_tool(const json::value& value, std::size_t index) {
  if (!value.is_object()) return std::unexpected(wrong_tool(index, "", "must be an object, not " + describe(value)));
  const json::value* kind = value.get_object().if_contains("type");
  if (kind != nullptr && *kind != "function")
    return std::unexpected(wrong_tool(index, ".type", "is " + describe(*kind), "did you mean \"function\"?"));
  const json::value* function = value.get_object().if_contains("function");
  if (function == nullptr)
    return std::unexpected(wrong_tool(index, ".function", "is missing", R"(send {"type": "function", "function": {"name": "..."}})"));
  if (!function->is_object()) return std::unexpected(wrong_tool(index, ".function", "must be an object, not " + describe(*function)));
  const json::object& fields = function->get_object();
  const json::value* name = fields.if_contains("name");
  if (name == nullptr || !name->is_string() || !is_tool_name(name->get_string())) {
    return std::unexpected(wrong_tool(index, ".function.name", name == nullptr ? "is missing" : "is " + describe(*name),
                                      fmt::format("use at most {} letters, digits and _ - . : /", kMaxToolNameBytes)));
  }
  const json::value* parameters = fields.if_contains("parameters");
  if (parameters != nullptr && !parameters->is_null()) {
    if (!parameters->is_object())
      return std::unexpected(wrong_tool(index, ".function.parameters", "must be a JSON schema, not " + describe(*parameters)));
    const json::value* type = parameters->get_object().if_contains("type");
    const json::value* strict = fields.if_contains("strict");
    // For a tool that is not strict, this is no error: the schema is not enforced, and a warning reports it.
    if (type != nullptr && *type != "object" && strict != nullptr && *strict == true) {
      return std::unexpected(
          wrong_tool(index, ".function.parameters.type", "is " + describe(*type), "use \"object\": arguments are an object"));
    }
  }
  const json::value* strict = fields.if_contains("strict");
  return Tool{.name = std::string(name->get_string()),
              .parameters = parameters != nullptr ? *parameters : json::value(),
              .strict = strict != nullptr && *strict == true,
              .index = index};
}

// Reads the tools, and removes from `sent` the tools of a foreign type.
void read_tools(ObjectReader& reader, json::array& sent, std::vector<Tool>& tools) {
  std::set<std::string_view> names;
  tools.reserve(sent.size());
  std::size_t num_foreign = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (const std::string_view type = foreign_type(sent[i]); !type.empty()) {
      reader.leave_out(fmt::format("tools[{}]:{}", i, type));
      ++num_foreign;
      continue;
    }
    nest_function(sent[i]);
    auto tool = read_tool(sent[i], i);
    if (!tool) return reader.reject(tool.error());
    tools.push_back(*std::move(tool));
    if (!names.insert(tools.back().name).second)
      return reader.reject(
          wrong_tool(i, ".function.name", fmt::format("'{}' is used twice", tools.back().name), "give each tool a different name"));
  }
  if (num_foreign == 0) return;
  json::array functions;
  for (json::value& tool : sent)
    if (foreign_type(tool).empty()) functions.push_back(std::move(tool));
  sent = std::move(functions);
}

// Returns the name in {"type": "function", "function": {"name": ...}} or in {"type": "function", "name": ...}.
std::string_view chosen_name(const json::value& choice) {
  if (!choice.is_object()) return {};
  const json::value* function = choice.get_object().if_contains("function");
  const json::value* name = function == nullptr ? choice.get_object().if_contains("name")
                                                : (function->is_object() ? function->get_object().if_contains("name") : nullptr);
  return name != nullptr && name->is_string() ? std::string_view(name->get_string()) : std::string_view();
}

// Removes all tools except those with these names.
void restrict_tools(ObjectReader& reader, ToolUse& use, const std::vector<std::string_view>& names) {
  std::vector<Tool> left;
  for (const std::string_view name : names) {
    const Tool* tool = find_tool(use.tools, name);
    if (tool == nullptr)
      return reader.reject("tool_choice", fmt::format("names '{}', which is not in tools", name.substr(0, 200)),
                           "name a function in tools");
    left.push_back(*tool);
  }
  use.tools = std::move(left);
}

// Reads {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}}.
void read_allowed_tools(ObjectReader& reader, const json::value& choice, ToolUse& use) {
  const json::value* allowed = choice.get_object().if_contains("allowed_tools");
  const json::object& fields = allowed != nullptr && allowed->is_object() ? allowed->get_object() : choice.get_object();
  const json::value* mode = fields.if_contains("mode");
  const json::value* tools = fields.if_contains("tools");
  if (tools == nullptr || !tools->is_array() || tools->get_array().empty())
    return reader.reject("tool_choice.allowed_tools.tools", "must be an array of tools");
  if (mode != nullptr && *mode != "auto" && *mode != "required")
    return reader.reject("tool_choice.allowed_tools.mode", "is " + describe(*mode), "use auto or required");
  use.choice = mode != nullptr && *mode == "required" ? ToolUse::Choice::required : ToolUse::Choice::automatic;
  std::vector<std::string_view> names;
  for (const json::value& tool : tools->get_array())
    if (foreign_type(tool).empty()) names.push_back(chosen_name(tool));
  if (names.empty() && use.choice == ToolUse::Choice::required)
    return reader.reject("tool_choice", "requires a tool that the server would have to run", "allow a function", ErrorCode::unsupported);
  if (names.empty()) use.choice = ToolUse::Choice::none;
  restrict_tools(reader, use, names);
}

void read_choice(ObjectReader& reader, const json::value* choice, ToolUse& use, bool has_tools) {
  use.choice = has_tools ? ToolUse::Choice::automatic : ToolUse::Choice::none;
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") {
    use.choice = ToolUse::Choice::none;
    return;
  }
  const json::value* type = choice->is_object() ? choice->get_object().if_contains("type") : nullptr;
  if (*choice != "required" && type == nullptr)
    return reader.reject("tool_choice", "is " + describe(*choice),
                         R"(send "auto", "none", "required" or {"type": "function", "function": {"name": "..."}})");
  if (use.tools.empty())
    return reader.reject("tool_choice", "requires a function in tools", "send functions: this server does not run tools",
                         ErrorCode::unsupported);
  use.choice = ToolUse::Choice::required;
  if (*choice == "required") return;
  if (*type == "allowed_tools") return read_allowed_tools(reader, *choice, use);
  const std::string_view name = chosen_name(*choice);
  if (*type != "function" || name.empty())
    return reader.reject("tool_choice", "does not name a function", R"(send {"type": "function", "function": {"name": "..."}})");
  restrict_tools(reader, use, {name});
  use.parallel = false;
}

}  // namespace

std::string_view foreign_type(const json::value& tool) {
  const json::value* type = tool.is_object() ? tool.get_object().if_contains("type") : nullptr;
  if (type == nullptr || !type->is_string()) return {};
  const std::string_view name = type->get_string();
  return nearest_name(name, {"function"}) ? std::string_view() : name;
}

ToolUse read_tool_use(ObjectReader& reader, json::value& shown) {
  ToolUse use;
  json::value* tools = reader.find("tools");
  const json::value* choice = reader.find("tool_choice");
  use.parallel = reader.boolean("parallel_tool_calls", true);
  if (tools != nullptr && !tools->is_array()) reader.reject("tools", "must be an array, not " + describe(*tools));
  if (tools != nullptr && tools->is_array()) read_tools(reader, tools->get_array(), use.tools);
  const bool has_tools = tools != nullptr && tools->is_array() && !tools->get_array().empty();
  read_choice(reader, choice, use, has_tools);
  if (has_tools && (choice == nullptr || *choice != "none")) shown = std::move(*tools);
  return use;
}

}  // namespace quire
