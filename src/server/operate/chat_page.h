#pragma once
// The page at /, a chat with the model: one self-contained HTML document, built from the files in chat/.
#include <string_view>

namespace quire {

[[nodiscard]] std::string_view chat_page_html();

}  // namespace quire
