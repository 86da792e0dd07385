// Finds unknown fields in the turns, content blocks and tools of a /v1/messages body. Runs before these parts are read, on the server's
// thread or in the job pool. Its lists must contain each field that messages_request.cpp reads from a part.
#include "server/api/anthropic/block_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "server/request/object_reader.h"
#include "server/request/retention.h"

namespace quire {

namespace json = boost::json;

namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kTurn[] = {"role", "content"};
constexpr std::string_view kTool[] = {"type", "name", "description", "input_schema", "strict"};
constexpr std::string_view kForm[] = {"type", "schema"};
constexpr std::string_view kText[] = {"type", "text"};
constexpr std::string_view kToolUse[] = {"type", "id", "name", "input", "caller"};  // answers contain `caller`
constexpr std::string_view kToolResult[] = {"type", "tool_use_id", "content", "is_error"};
constexpr std::string_view kThinking[] = {"type", "thinking", "signature"};
constexpr std::string_view kRedacted[] = {"type", "data"};

struct BlockFields {
  std::string_view type;
  Names names;
};
constexpr BlockFields kBlocks[] = {
    {"text", kText}, {"tool_use", kToolUse}, {"tool_result", kToolResult}, {"thinking", kThinking}, {"redacted_thinking", kRedacted}};

// Checks one body and stores the first error.
class UnknownFields {
 public:
  UnknownFields(bool is_beta, std::vector<std::string>& ignored) : is_beta_(is_beta), ignored_(&ignored) {}

  Result<std::uint32_t> check_body(json::object& body);

 private:
  template <typename Look>
  static void each_object(json::value* values, const std::string& path, Look look);
  void in_blocks(json::value* blocks, const std::string& path);
  void in_tool(json::object& tool, const std::string& path);
  void in_object(json::object& object, const std::string& path, Names known);

  bool is_beta_;
  std::vector<std::string>* ignored_;
  std::set<std::string> names_;  // names that `ignored_` already has
  std::uint32_t retention_s_ = 0;
  std::optional<Error> error_;
};

template <typename Look>
void UnknownFields::each_object(json::value* values, const std::string& path, Look look) {
  if (values == nullptr || !values->is_array()) return;
  json::array& array = values->get_array();
  for (std::size_t i = 0; i < array.size(); ++i)
    if (array[i].is_object()) look(array[i].get_object(), fmt::format("{}[{}]", path, i));
}

void UnknownFields::in_object(json::object& object, const std::string& path, Names known) {
  ObjectReader reader(object, path + ".");
  for (const std::string_view name : known) (void)reader.find(name);
  if (const json::value* control = reader.find("cache_control")) {
    Result<std::uint32_t> asked = parse_cache_control(*control);
    retention_s_ = std::max(retention_s_, asked.value_or(0));
    if (!asked) {
      asked.error().field.insert(0, path + ".");
      reader.reject(std::move(asked.error()));
    }
  }
  std::vector<std::string> found;
  if (const auto done = reader.finish(found, is_beta_); !done && !error_) error_ = done.error();
  for (std::string& field : found)
    if (ignored_->size() < kMaxIgnored && names_.insert(field.substr(path.size() + 1)).second) ignored_->push_back(std::move(field));
}

void UnknownFields::in_blocks(json::value* blocks, const std::string& path) {
  each_object(blocks, path, [this](json::object& block, const std::string& at) {
    const json::value* type = block.if_contains("type");
    const auto* const known = std::ranges::find_if(
        kBlocks, [type](const BlockFields& fields) { return type != nullptr && *type == json::string_view(fields.type); });
    if (known == std::end(kBlocks)) return;
    in_object(block, at, known->names);
    if (known->type == "tool_result") in_blocks(block.if_contains("content"), at + ".content");
  });
}

// Checks only custom tools. Tools of other types are ignored as a whole.
void UnknownFields::in_tool(json::object& tool, const std::string& path) {
  const json::value* type = tool.if_contains("type");
  if (type == nullptr || type->is_null() || *type == "custom") in_object(tool, path, kTool);
}

Result<std::uint32_t> UnknownFields::check_body(json::object& body) {
  in_blocks(body.if_contains("system"), "system");
  each_object(body.if_contains("messages"), "messages", [this](json::object& turn, const std::string& at) {
    in_object(turn, at, kTurn);
    in_blocks(turn.if_contains("content"), at + ".content");
  });
  each_object(body.if_contains("tools"), "tools", [this](json::object& tool, const std::string& at) { in_tool(tool, at); });
  json::value* config = body.if_contains("output_config");
  json::value* form = config != nullptr && config->is_object() ? config->get_object().if_contains("format") : nullptr;
  if (form != nullptr && form->is_object()) in_object(form->get_object(), "output_config.format", kForm);
  if (error_) return std::unexpected(*std::move(error_));
  return retention_s_;
}

}  // namespace

Result<std::uint32_t> name_unknown_fields(json::object& body, bool is_beta, std::vector<std::string>& ignored) {
  return UnknownFields(is_beta, ignored).check_body(body);
}

}  // namespace quire
