#pragma once
// Renames fields in errors for APIs whose field names differ from the names in the common request.
#include <span>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

// Marks a field that already has the API's name. If a field begins with it, rename_fields() removes it and changes nothing else.
inline constexpr char kApiFieldPrefix = '=';

struct FieldName {
  std::string_view common, api_name;
};

// Converts the field of an error from the common request's name to the API's name. In `names`, a longer name must precede its prefixes.
[[nodiscard]] Error rename_fields(std::span<const FieldName> names, Error error);

}  // namespace quire
