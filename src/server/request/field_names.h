#pragma once
// Fields that an API calls otherwise than the common request does.
#include <span>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

// What a field begins with that is in the words of the API already: rename_fields() takes it away and changes nothing else.
inline constexpr char kInOwnWords = '=';

struct FieldName {
  std::string_view common, own;
};

// An error of the common request in the words of an API that has taken its chats for it. `names`: longer ones before those that they begin
// with.
[[nodiscard]] Error rename_fields(std::span<const FieldName> names, Error error);

}  // namespace quire
