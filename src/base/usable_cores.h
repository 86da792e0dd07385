#pragma once
// The number of processors that this process may keep busy. In a container this is often less than the machine has.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// Returns the smaller of two numbers: the processors that this thread may run on (sched_getaffinity), and the CPU quota of its control
// groups, rounded up. At least 1. Reads the system again at each call.
std::uint32_t usable_cores();

// Returns the smallest quota, in processors, of a control group and the groups above it; nullopt if none is set. `membership` is the text
// of /proc/self/cgroup, `root` the folder /sys/fs/cgroup. Supports versions 1 (cpu.cfs_quota_us) and 2 (cpu.max). A group that cannot be
// seen from inside a container counts as a group without a quota.
std::optional<double> cgroup_cpu_quota(std::string_view membership, const std::string& root);

}  // namespace quire
