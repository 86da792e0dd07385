#include "base/usable_memory.h"

#include <algorithm>
#include <fstream>

#include "base/cgroup.h"

namespace quire {
namespace {

// Limits from this value on mean "no limit": version 1 then writes a number near 2^63.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60U;

std::optional<std::uint64_t> read_bytes(const std::string& path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

// Returns the number that follows `field` at the start of a line.
std::optional<std::uint64_t> read_field(const std::string& path, std::string_view field) {
  std::ifstream in(path);
  for (std::string word; in >> word;) {
    std::uint64_t value = 0;
    if (word == field && in >> value) return value;
    std::getline(in, word);
  }
  return std::nullopt;
}

bool is_version_2(const std::string& folder) {
  return read_bytes(folder + "/memory.current").has_value();
}

std::optional<std::uint64_t> limit_of(const std::string& folder) {
  const auto limit = read_bytes(folder + (is_version_2(folder) ? "/memory.max" : "/memory.limit_in_bytes"));
  return limit && *limit < kNoLimit ? limit : std::nullopt;
}

// Returns the number of bytes that the limit of a group leaves. Cached files do not count as used, because the kernel frees them when
// memory runs out.
std::optional<std::uint64_t> left_in(const std::string& folder) {
  const bool is_v2 = is_version_2(folder);
  const auto limit = limit_of(folder);
  const auto used = read_bytes(folder + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  const std::uint64_t files = read_field(folder + "/memory.stat", is_v2 ? "inactive_file" : "total_inactive_file").value_or(0);
  const std::uint64_t held = *used - std::min(*used, files);
  return *limit - std::min(*limit, held);
}

template <class Read>
std::optional<std::uint64_t> least_of(std::string_view membership, const std::string& root, Read read) {
  std::optional<std::uint64_t> least;
  for (const std::string& folder : cgroup_folders(membership, "memory", root))
    if (const auto bytes = read(folder); bytes && (!least || *bytes < *least)) least = bytes;
  return least;
}

}  // namespace

std::optional<std::uint64_t> cgroup_memory_left(std::string_view membership, const std::string& root) {
  return least_of(membership, root, left_in);
}

std::optional<std::uint64_t> cgroup_memory_limit(std::string_view membership, const std::string& root) {
  return least_of(membership, root, limit_of);
}

std::uint64_t total_memory_bytes() {
  const std::uint64_t machine = 1024 * read_field("/proc/meminfo", "MemTotal:").value_or(0);
  const auto limit = cgroup_memory_limit(process_cgroups(), kCgroupRoot);
  return limit && (machine == 0 || *limit < machine) ? *limit : machine;
}

std::uint64_t usable_memory_bytes() {
  const std::uint64_t machine = 1024 * read_field("/proc/meminfo", "MemAvailable:").value_or(0);
  const auto left = cgroup_memory_left(process_cgroups(), kCgroupRoot);
  return left ? std::min(*left, machine) : machine;
}

}  // namespace quire
