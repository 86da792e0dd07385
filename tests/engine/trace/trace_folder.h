#pragma once
// A temporary folder for a trace; it is removed at the end of the test.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace quire {

class TraceFolder {
 public:
  TraceFolder() { std::filesystem::create_directories(path_); }
  ~TraceFolder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream in(file(name));
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  [[nodiscard]] std::vector<std::string> lines(const std::string& name) const {
    std::vector<std::string> lines;
    std::istringstream in(text(name));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

 private:
  std::filesystem::path path_ = std::filesystem::temp_directory_path() / fmt::format("quire_trace_test_{}_{}", getpid(), counter_++);
  static inline int counter_ = 0;
};

}  // namespace quire
