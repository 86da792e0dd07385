#pragma once
// The description of the API at /openapi.json, which is docs/openapi.json, and the page at /docs that shows it: nothing from elsewhere.
#include <string_view>

namespace quire {

[[nodiscard]] std::string_view openapi_json();
[[nodiscard]] std::string_view api_page_html();

}  // namespace quire
