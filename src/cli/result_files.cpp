#include "cli/result_files.h"

#include <fmt/format.h>

#include <fstream>

namespace quire {

Result<void> write_file(std::string flag, const std::string& path, std::string_view text) {
  if (path.empty()) return {};
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return fail(ErrorCode::invalid_argument, std::move(flag), fmt::format("'{}' cannot be written", path), "use another file");
  return {};
}

void add_html_flag(CLI::App& command, std::string& path) {
  command.add_option("--html", path, "File to which the results are drawn, as an HTML page for a browser")->type_name("FILE");
  command
      .add_option_function<std::string>("--svg",
                                        [&path](const std::string& given) {
                                          fmt::print(stderr, "quire: --svg is now --html; it writes an HTML page\n");
                                          path = given;
                                        })
      ->group("");  // old name: accepted for one version and not shown in --help
}

Result<void> write_html(const std::string& path, std::string_view json) {
  std::string page(plot_page_html());
  for (const char c : json)
    if (c == '<')  // in JSON, '<' occurs only in strings
      page += "\\u003c";
    else
      page += c;
  return write_file("--html", path, page + "</script>\n");
}

}  // namespace quire
