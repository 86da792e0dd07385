#pragma once
// A pipe that tests use as the log's output.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace quire {

// Written text stays in the pipe until lines() reads it.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    close_writer();
    ::close(ends_[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  [[nodiscard]] int writer() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0) ::close(std::exchange(ends_[1], -1));
  }
  // Closes the writer and returns all lines without their line feeds.
  std::vector<std::string> lines() {
    close_writer();
    std::string text;
    char bytes[4096];
    for (ssize_t count = 0; (count = read(ends_[0], bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<std::size_t>(count));
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      lines.push_back(text.substr(at, end - at));
      at = end == std::string::npos ? text.size() : end + 1;
    }
    return lines;
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace quire
