#pragma once
// Files that commands write their results to. The page of --html draws a command's JSON in a browser, without a network. On the main
// thread.
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

// Does nothing if `path` is empty. Errors name `flag`.
Result<void> write_file(std::string flag, const std::string& path, std::string_view text);

// Adds --html, and --svg, its name in version 0.1.
void add_html_flag(CLI::App& command, std::string& path);

// Returns the page without its data. It ends inside the element for the JSON (plot_page.html).
[[nodiscard]] std::string_view plot_page_html();

// Writes the page with `json`; does nothing if `path` is empty. Text in the JSON cannot end the page's element for it.
Result<void> write_html(const std::string& path, std::string_view json);

}  // namespace quire
