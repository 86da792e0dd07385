#include "base/append_format.h"

#include <iterator>

namespace quire {

void append_format_args(std::string& out, fmt::string_view format, fmt::format_args args) {
  fmt::vformat_to(std::back_inserter(out), format, args);
}

}  // namespace quire
