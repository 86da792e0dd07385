#include "cli/result_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace quire {
namespace {

struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() / ("quire_result_" + std::to_string(getpid()))).string();
  ~TemporaryFile() { std::filesystem::remove(path); }
  [[nodiscard]] std::string text() const { return {std::istreambuf_iterator<char>(std::ifstream(path).rdbuf()), {}}; }
};

TEST(ResultFiles, PageEndsWithTheJsonAndNoTextInItEndsItsElement) {
  const TemporaryFile file;
  ASSERT_TRUE(write_html(file.path, R"({"tenant": "</script><!--<script>"})").has_value());
  EXPECT_EQ(file.text(), std::string(plot_page_html()) + R"({"tenant": "\u003c/script>\u003c!--\u003cscript>"})" + "</script>\n");
}

TEST(ResultFiles, OldNameWritesThePageOfHtmlAndWarns) {
  for (const auto& [flag, warning] : {std::pair("--html", ""), {"--svg", "quire: --svg is now --html; it writes an HTML page\n"}}) {
    CLI::App app;
    std::string path;
    add_html_flag(app, path);
    testing::internal::CaptureStderr();
    app.parse(std::vector<std::string>{"a.html", flag});  // CLI11 reads a vector from its end
    EXPECT_EQ(testing::internal::GetCapturedStderr(), warning);
    EXPECT_EQ(path, "a.html");
    EXPECT_EQ(app.help().find("--svg"), std::string::npos);
  }
}

TEST(ResultFiles, ErrorNamesTheFlag) {
  EXPECT_TRUE(write_file("--json", "", "text").has_value());
  EXPECT_EQ(write_html("/nowhere/a.html", "{}").error().to_string(), "--html: '/nowhere/a.html' cannot be written; use another file");
}

}  // namespace
}  // namespace quire
