#pragma once
// Renames fields that an API calls differently from the common request.
#include <span>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

// The first character of a field that already has the API's name: rename_fields() removes it and changes nothing else.
inline constexpr char kApiFieldPrefix = '=';

struct FieldName {
  std::string_view common, api_name;
};

// Converts an error of the common request to the field names of an API that has translated its body into a chat. `names`: a longer name
// comes before its prefixes.
[[nodiscard]] Error rename_fields(std::span<const FieldName> names, Error error);

}  // namespace quire
