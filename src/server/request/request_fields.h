#pragma once
// The table of all fields that a body of the generating APIs may have, and how each API treats a field.
#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// The API of a body, which is also the column of the table.
enum class FieldApi : std::uint8_t { completion, chat, responses, messages, ollama_chat, ollama_generate };
inline constexpr std::size_t kNumFieldApis = 6;

enum class FieldUse : std::uint8_t {
  read,     // read by this API's reader
  passed,   // passed under the same name to the chat into which the body is translated
  renamed,  // renamed to RequestField::other before the body is read
  ignored,  // has no effect; listed in X-Quire-Ignored-Fields
  refused,  // refused unless its value is neutral, because the answer would differ
};

struct RequestField {
  std::string_view name;
  std::string_view uses;          // one letter per FieldApi: r, p, a (renamed: an alias), i, x
  std::string_view neutral = {};  // JSON values that change nothing, joined by commas; null, "", [] and {} are always neutral
  std::string_view remedy = {};   // for the error of a refused field
  std::string_view other = {};    // for an alias: the name of the field that it stands for

  [[nodiscard]] FieldUse use(FieldApi api) const;
  [[nodiscard]] bool is_neutral(const boost::json::value& value) const;
};

// Returns all fields, grouped by topic.
[[nodiscard]] std::span<const RequestField> request_fields();

// Returns null if neither another vendor nor this server has the field.
[[nodiscard]] const RequestField* find_request_field(std::string_view name);

// Returns the error for a field with the use `refused`, with the field's name in the body.
[[nodiscard]] Error refused_field(const RequestField& field, const boost::json::value& value);

// Returns the field of `known` that `name` misspells, or an empty string. These count as misspelled: another spelling of the same words
// ("maxTokens"), one wrong letter in a name of at least `shortest` letters, or two wrong letters in a name of at least ten.
[[nodiscard]] std::string_view misspelt_field(std::string_view name, std::span<const std::string_view> known, std::size_t shortest = 6);

// Returns the fields that an API reads, passes or renames. misspelt_field() compares names with them.
[[nodiscard]] std::vector<std::string_view> fields_read_by(FieldApi api);

// An alias in a body, and the field to which its value was moved.
struct AppliedAlias {
  std::string_view alias, field;
};

// Moves the values of aliases to their fields. Errors: an alias and its field have different values.
[[nodiscard]] Result<std::vector<AppliedAlias>> apply_aliases(boost::json::object& body, FieldApi api);

// Returns the error with the field's name that the client sent.
[[nodiscard]] Error with_alias_name(std::span<const AppliedAlias> taken, Error error);

}  // namespace quire
