#pragma once
// The number of processors that this process may keep busy. In a container the number is often smaller than the machine's number of cores.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// Returns the smaller of two numbers: the processors on which this thread may run (sched_getaffinity), and the CPU quota of its control
// groups, rounded up. At least 1. Each call reads the system again.
std::uint32_t usable_cores();

// Returns the smallest CPU quota of a control group and its parent groups, as a number of processors; nullopt if no quota is set.
// `membership` is the text of /proc/self/cgroup, and `root` is the folder /sys/fs/cgroup. Supports versions 1 (cpu.cfs_quota_us) and 2
// (cpu.max). A group that is not visible inside a container counts as a group without a quota.
std::optional<double> cgroup_cpu_quota(std::string_view membership, const std::string& root);

}  // namespace quire
