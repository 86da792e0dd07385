#pragma once
// A body of multipart/form-data (RFC 7578), as views of it.
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire {

struct FormPart {
  std::string name;
  bool is_file = false;  // it came with a file's name
  std::string_view value;
};

// Bounded in time and memory by the body's size; at most kMaxFormParts parts. Errors: `invalid_argument`, of the field "Content-Type" or
// "body".
inline constexpr std::size_t kMaxFormParts = 64;
Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body);

}  // namespace quire
