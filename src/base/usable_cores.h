#pragma once
// How many processors this process may keep busy, which in a container is often less than the machine has.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// The smaller of what the scheduler lets this thread run on (sched_getaffinity) and the CPU quota of its control groups, rounded up; at
// least 1. Read anew at each call.
std::uint32_t usable_cores();

// The smallest quota, in processors, of a control group and the groups above it; nothing where none is set. `membership` is the text of
// /proc/self/cgroup, `root` the folder /sys/fs/cgroup. Versions 1 (cpu.cfs_quota_us) and 2 (cpu.max); a group that is not to be seen from
// inside a container counts as without quota.
std::optional<double> cgroup_cpu_quota(std::string_view membership, const std::string& root);

}  // namespace quire
