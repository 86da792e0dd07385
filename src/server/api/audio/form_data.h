#pragma once
// Parses a multipart/form-data body (RFC 7578) into views of the body.
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire {

struct FormPart {
  std::string name;
  bool is_file = false;  // the part has a file name
  std::string_view value;
};

// Parses a form of at most kMaxFormParts parts. Time and memory are linear in the size of the body. Errors: `invalid_argument` for the
// field "Content-Type" or "body".
inline constexpr std::size_t kMaxFormParts = 64;
Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body);

}  // namespace quire
