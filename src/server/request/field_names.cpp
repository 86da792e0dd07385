#include "server/request/field_names.h"

namespace quire {

Error rename_fields(std::span<const FieldName> names, Error error) {
  if (error.field.starts_with(kApiFieldPrefix)) {
    error.field.erase(0, 1);
    return error;
  }
  // The index is dropped, because the indices of the chat's messages differ from the indices in the client's body.
  if (error.field.starts_with("messages[")) error.field = "messages";
  for (const auto& [common, api_name] : names) {
    if (!error.field.starts_with(common)) continue;
    if (error.field.size() > common.size() && error.field[common.size()] != '.') continue;
    error.field.replace(0, common.size(), api_name);
    return error;
  }
  // tools[0].function.name becomes tools[0].name.
  if (const std::size_t at = error.field.find("].function"); error.field.starts_with("tools[") && at != std::string::npos)
    error.field.erase(at + 1, std::string_view(".function").size());
  return error;
}

}  // namespace quire
