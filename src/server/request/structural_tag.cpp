#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <utility>

#include "server/request/structured_output.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxTags = 1000;

std::unexpected<Error> wrong_tag(std::string field, std::string message, std::string remedy) {
  return fail(ErrorCode::invalid_argument, std::move(field), std::move(message), std::move(remedy));
}

Result<StructuralTag> tag_of(const json::value& value, const json::array& triggers, std::size_t index) {
  const std::string at = fmt::format("structures[{}]", index);
  if (!value.is_object()) return wrong_tag(at, "must be an object, not " + describe(value), R"(send {"begin", "schema", "end"})");
  const json::object& fields = value.get_object();
  StructuralTag tag;
  for (const auto& [name, text] : {std::pair("begin", &tag.begin), std::pair("end", &tag.end)}) {
    const json::value* given = fields.if_contains(name);
    if (given == nullptr || !given->is_string()) return wrong_tag(at + "." + name, "must be a string", "");
    *text = given->get_string();
  }
  const json::value* schema = fields.if_contains("schema");
  if (schema == nullptr || !(schema->is_object() || schema->is_bool())) return wrong_tag(at + ".schema", "must be a JSON schema", "");
  tag.schema = json::serialize(*schema);
  const auto trigger = std::ranges::find_if(triggers, [&](const json::value& one) {
    return one.is_string() && !one.get_string().empty() && std::string_view(tag.begin).starts_with(std::string_view(one.get_string()));
  });
  if (trigger == triggers.end())
    return wrong_tag(at + ".begin", "does not begin with any of the triggers", "add its beginning to triggers");
  tag.trigger = trigger->get_string();
  return tag;
}

}  // namespace

Result<std::vector<StructuralTag>> parse_structural_tag(const json::value& value) {
  json::value parsed;
  if (value.is_string()) {
    json::error_code failed;
    parsed = json::parse(value.get_string(), failed, {}, {.max_depth = 64});
    if (failed) return wrong_tag("", "is not valid JSON: " + failed.message(), "");
  }
  const json::value& tag = value.is_string() ? parsed : value;
  if (!tag.is_object()) return wrong_tag("", "must be an object, not " + describe(tag), R"(send {"structures": [...], "triggers": [...]})");
  const json::object& fields = tag.get_object();
  if (fields.contains("format"))
    return fail(ErrorCode::unsupported, "format", "is not supported", R"(send {"structures": [...], "triggers": [...]})");
  const json::value* structures = fields.if_contains("structures");
  const json::value* triggers = fields.if_contains("triggers");
  if (triggers == nullptr || !triggers->is_array()) return wrong_tag("triggers", "must be an array of strings", "");
  if (structures == nullptr || !structures->is_array() || structures->get_array().empty() || structures->get_array().size() > kMaxTags)
    return wrong_tag("structures", fmt::format("must be an array of 1 to {} structures", kMaxTags), "");
  std::vector<StructuralTag> tags;
  for (std::size_t i = 0; i < structures->get_array().size(); ++i) {
    auto one = tag_of(structures->get_array()[i], triggers->get_array(), i);
    if (!one) return std::unexpected(one.error());
    tags.push_back(*std::move(one));
  }
  return tags;
}

}  // namespace quire
