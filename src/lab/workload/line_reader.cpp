#include "lab/workload/line_reader.h"

#include <fmt/format.h>

namespace quire {
namespace {

constexpr std::size_t kLongestLine = std::size_t{64} << 20U, kPiece = std::size_t{256} << 10U;

}  // namespace

Result<LineReader> LineReader::open(const std::string& path) {
  auto bytes = open_bytes(path);
  if (!bytes) return std::unexpected(bytes.error());
  return LineReader(std::move(*bytes), path);
}

Result<bool> LineReader::next() {
  std::size_t searched = begin_;
  for (;;) {
    if (const std::size_t end = buffer_.find('\n', searched); end != std::string::npos || (ended_ && begin_ < buffer_.size())) {
      line_ = std::string_view(buffer_).substr(begin_, end == std::string::npos ? end : end - begin_);
      begin_ = searched = end == std::string::npos ? buffer_.size() : end + 1;
      ++number_;
      if (line_.ends_with('\r')) line_.remove_suffix(1);
      if (!line_.empty()) return true;
      continue;
    }
    if (ended_) return false;
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    if (searched > kLongestLine) {
      ++number_;
      return std::unexpected(error("is longer than 64 MiB", "use a file with one record per line"));
    }
    buffer_.resize(searched + kPiece);
    const auto count = bytes_->read({buffer_.data() + searched, kPiece});
    if (!count) return std::unexpected(count.error());
    buffer_.resize(searched + *count);
    ended_ = *count == 0;
  }
}

Error LineReader::error(std::string_view what, std::string_view remedy) const {
  return {ErrorCode::invalid_argument, fmt::format("{}:{}", path_, number_), std::string(what), std::string(remedy)};
}

}  // namespace quire
