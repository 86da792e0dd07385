// Linked in builds without zlib.
#include <fmt/format.h>

#include <array>
#include <fstream>

#include "lab/workload/byte_source.h"

namespace quire {
namespace {

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(std::ifstream file) : file_(std::move(file)) {}
  Result<std::size_t> read(std::span<char> into) override {
    file_.read(into.data(), static_cast<std::streamsize>(into.size()));
    return static_cast<std::size_t>(file_.gcount());
  }

 private:
  std::ifstream file_;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 2> magic{};
  if (!file) return fail(ErrorCode::not_found, path, "cannot be opened", "use a file that exists and that you can read");
  file.read(magic.data(), magic.size());
  if (file.gcount() == 2 && magic[0] == '\x1f' && magic[1] == '\x8b')
    return fail(ErrorCode::unsupported, path, "is a gzip file, and this build has no zlib",
                fmt::format("decompress it: gzip -d '{}'", path));
  file.clear();
  file.seekg(0);
  return std::make_unique<PlainSource>(std::move(file));
}

}  // namespace quire
