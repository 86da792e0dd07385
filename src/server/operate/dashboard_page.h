#pragma once
// The page at /dashboard: one self-contained HTML document, built from the files in dashboard/.
#include <string_view>

namespace quire {

[[nodiscard]] std::string_view dashboard_page_html();

}  // namespace quire
