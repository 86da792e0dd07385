#pragma once
// The API description at /openapi.json (docs/openapi.json), and the page at /docs that shows it. The page loads nothing from other servers.
#include <string_view>

namespace quire {

[[nodiscard]] std::string_view openapi_json();
[[nodiscard]] std::string_view api_page_html();

}  // namespace quire
