#include "base/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

namespace quire {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<double> read_number(const std::string& path) {
  std::ifstream in(path);
  double value = 0.0;
  return in >> value ? std::optional(value) : std::nullopt;
}

std::optional<double> ratio(std::optional<double> quota, std::optional<double> period) {
  if (!quota || !period || *quota <= 0.0 || *period <= 0.0) return std::nullopt;  // version 1 says -1 for none
  return *quota / *period;
}

// Version 2: "max 100000" or "150000 100000". Version 1: two files.
std::optional<double> quota_of(const std::string& folder) {
  std::ifstream in(folder + "/cpu.max");
  double quota = 0.0, period = 0.0;
  if (in >> quota >> period) return ratio(quota, period);
  return ratio(read_number(folder + "/cpu.cfs_quota_us"), read_number(folder + "/cpu.cfs_period_us"));
}

void take_smaller(std::optional<double>& least, std::optional<double> other) {
  if (other && (!least || *other < *least)) least = other;
}

// A line of the membership is ID:CONTROLLERS:PATH; version 2 names no controllers. Version 1 mounts them under their names.
std::vector<std::string> mounts_of(std::string_view controllers, const std::string& root) {
  if (controllers.empty()) return {root, root + "/unified"};
  const std::string padded = "," + std::string(controllers) + ",";
  if (padded.find(",cpu,") == std::string::npos) return {};
  return {root + "/" + std::string(controllers), root + "/cpu"};
}

}  // namespace

std::optional<double> cgroup_cpu_quota(std::string_view membership, const std::string& root) {
  std::optional<double> least;
  while (!membership.empty()) {
    const std::string_view line = membership.substr(0, membership.find('\n'));
    membership.remove_prefix(std::min(line.size() + 1, membership.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    for (const std::string& mount : mounts_of(line.substr(first + 1, second - first - 1), root)) {
      std::string path(line.substr(second + 1));
      for (; !path.empty(); path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/')))
        take_smaller(least, quota_of(mount + path));
      take_smaller(least, quota_of(mount));
    }
  }
  return least;
}

std::uint32_t usable_cores() {
  cpu_set_t set;
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;  // fails where there are more processors than the set holds
  std::uint32_t cores = known ? static_cast<std::uint32_t>(CPU_COUNT(&set)) : std::thread::hardware_concurrency();
  if (const auto quota = cgroup_cpu_quota(read_text("/proc/self/cgroup"), "/sys/fs/cgroup"); quota && *quota < cores)
    cores = static_cast<std::uint32_t>(std::ceil(*quota));
  return std::max(cores, 1U);
}

}  // namespace quire
