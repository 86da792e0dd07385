#include "server/request/field_names.h"

namespace quire {

Error rename_fields(std::span<const FieldName> names, Error error) {
  if (error.field.starts_with(kInOwnWords)) {
    error.field.erase(0, 1);
    return error;
  }
  // The places of a chat's messages are not those of what was sent.
  if (error.field.starts_with("messages[")) error.field = "messages";
  for (const auto& [common, own] : names) {
    if (!error.field.starts_with(common)) continue;
    if (error.field.size() > common.size() && error.field[common.size()] != '.') continue;
    error.field.replace(0, common.size(), own);
    return error;
  }
  // tools[0].function.name
  if (const std::size_t at = error.field.find("].function"); error.field.starts_with("tools[") && at != std::string::npos)
    error.field.erase(at + 1, std::string_view(".function").size());
  return error;
}

}  // namespace quire
