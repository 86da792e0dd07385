#include "base/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

#include "base/cgroup.h"

namespace quire {
namespace {

std::optional<double> read_number(const std::string& path) {
  std::ifstream in(path);
  double value = 0.0;
  return in >> value ? std::optional(value) : std::nullopt;
}

std::optional<double> ratio(std::optional<double> quota, std::optional<double> period) {
  if (!quota || !period || *quota <= 0.0 || *period <= 0.0) return std::nullopt;  // version 1 writes -1 for no quota
  return *quota / *period;
}

// Returns the CPU quota of a group, as a number of processors. Version 2 has one file, with "max 100000" or "150000 100000". Version 1 has
// two files.
std::optional<double> quota_of(const std::string& folder) {
  std::ifstream in(folder + "/cpu.max");
  double quota = 0.0, period = 0.0;
  if (in >> quota >> period) return ratio(quota, period);
  return ratio(read_number(folder + "/cpu.cfs_quota_us"), read_number(folder + "/cpu.cfs_period_us"));
}

void take_smaller(std::optional<double>& least, std::optional<double> other) {
  if (other && (!least || *other < *least)) least = other;
}

}  // namespace

std::optional<double> cgroup_cpu_quota(std::string_view membership, const std::string& root) {
  std::optional<double> least;
  for (const std::string& folder : cgroup_folders(membership, "cpu", root)) take_smaller(least, quota_of(folder));
  return least;
}

// Rounds the quota up, so that a container with half a processor still gets one thread.
std::uint32_t usable_cores() {
  cpu_set_t set;
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;  // fails if the machine has more processors than fit into `set`
  std::uint32_t cores = known ? static_cast<std::uint32_t>(CPU_COUNT(&set)) : std::thread::hardware_concurrency();
  if (const auto quota = cgroup_cpu_quota(process_cgroups(), kCgroupRoot); quota && *quota < cores)
    cores = static_cast<std::uint32_t>(std::ceil(*quota));
  return std::max(cores, 1U);
}

}  // namespace quire
