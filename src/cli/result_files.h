#pragma once
// Files to which commands write their results. The HTML page of --html draws a command's JSON in a browser, without network access. Used on
// the main thread.
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

// Writes a file. Does nothing if `path` is empty. Errors name `flag`.
Result<void> write_file(std::string flag, const std::string& path, std::string_view text);

// Adds the flag --html, and the name --svg that it had in version 0.1.
void add_html_flag(CLI::App& command, std::string& path);

// Returns the HTML page without its data. The text ends inside the element that will contain the JSON (plot_page.html).
[[nodiscard]] std::string_view plot_page_html();

// Writes the HTML page with `json`. Does nothing if `path` is empty. Characters in the JSON are escaped, so that its text cannot end the
// element that contains it.
Result<void> write_html(const std::string& path, std::string_view json);

}  // namespace quire
