#include "engine/tiers/kv_key.h"

#include <fmt/format.h>

#include <fstream>
#include <span>

namespace quire {
namespace {

constexpr std::size_t kShortestKey = 16, kLongestKey = 4096;

}  // namespace

Result<std::vector<std::byte>> read_kv_key(const std::string& file, const char* field) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(kLongestKey + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (stream.bad() || (text.empty() && !stream.eof()))
    return fail(ErrorCode::io, field, file + " cannot be read", "use a file that this process can read");
  if (text.ends_with('\n')) text.pop_back();
  if (text.size() < kShortestKey || text.size() > kLongestKey)
    return fail(ErrorCode::invalid_argument, field,
                fmt::format("{} has {} bytes", file, text.size() > kLongestKey ? "too many" : std::to_string(text.size())),
                fmt::format("use a file of {} to {} random bytes", kShortestKey, kLongestKey));
  const auto bytes = std::as_bytes(std::span(text));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

}  // namespace quire
