#pragma once
// Reads recordings of tests/golden. The program xz decompresses a file whose name ends in .xz.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace quire::test {

// `path` starts at the root of the repository. The environment variable `variable` replaces it if it is set. The stream is not good() if
// the file cannot be read.
inline std::istringstream open_recording(std::string path, const char* variable = nullptr) {
  if (variable != nullptr && std::getenv(variable) != nullptr) path = std::getenv(variable);
  std::string text;
  bool is_read = false;
  if (path.ends_with(".xz")) {
    std::FILE* pipe = popen(("xz -dc '" + path + "'").c_str(), "r");
    char part[1 << 14];
    while (const std::size_t size = pipe == nullptr ? 0 : std::fread(part, 1, sizeof part, pipe)) text.append(part, size);
    is_read = pipe != nullptr && pclose(pipe) == 0;
  } else {
    std::ifstream file(path, std::ios::binary);
    is_read = file.good();
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::istringstream stream(std::move(text));
  if (!is_read) stream.setstate(std::ios::failbit);
  return stream;
}

}  // namespace quire::test
