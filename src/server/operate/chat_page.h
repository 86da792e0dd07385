#pragma once
// The chat page at /: one self-contained HTML document.
#include <string_view>

namespace quire {

[[nodiscard]] std::string_view chat_page_html();

}  // namespace quire
