#include "lab/workload/byte_source.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

namespace quire {
namespace {

// Reads files through gzread(), which also reads uncompressed files.
class GzipSource final : public ByteSource {
 public:
  GzipSource(gzFile file, std::string path) : file_(file), path_(std::move(path)) {}
  ~GzipSource() override { gzclose_r(file_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  Result<std::size_t> read(std::span<char> into) override {
    const int count = gzread(file_, into.data(), static_cast<unsigned>(std::min<std::size_t>(into.size(), 1U << 20U)));
    int code = Z_OK;
    const char* const what = gzerror(file_, &code);
    if (count < 0 || code == Z_BUF_ERROR)
      return fail(ErrorCode::corrupt, path_, fmt::format("is a corrupted or truncated gzip file: {}", what), "download it again");
    return static_cast<std::size_t>(count);
  }

 private:
  gzFile file_;
  std::string path_;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_bytes(const std::string& path) {
  struct stat info{};
  gzFile file = stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode) ? gzopen(path.c_str(), "rb") : nullptr;
  if (file == nullptr) return fail(ErrorCode::not_found, path, "cannot be opened", "use a file that exists and that you can read");
  gzbuffer(file, 1U << 18U);
  return std::make_unique<GzipSource>(file, path);
}

}  // namespace quire
