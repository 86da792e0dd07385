#pragma once
// The memory that this process may use, in total and now. In a container this is often less than the machine has.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// Returns the smaller of the machine's available memory (MemAvailable) and the memory that the limits of this process's control groups
// leave. Reads the system again at each call; 0 if nothing can be read.
std::uint64_t usable_memory_bytes();

// Returns the smaller of the machine's memory (MemTotal) and the limits of this process's control groups. Memory in use counts, too; 0 if
// nothing can be read.
std::uint64_t total_memory_bytes();

// Returns the smallest limit of a control group and the groups above it, in bytes; nullopt if none is set. The arguments are as in
// cgroup_memory_left().
std::optional<std::uint64_t> cgroup_memory_limit(std::string_view membership, const std::string& root);

// Returns the fewest bytes that the limits of a control group and the groups above it leave. Cached files count as free. nullopt: no limit
// is set. `membership` is the text of /proc/self/cgroup, `root` the folder /sys/fs/cgroup. Supports versions 1 and 2.
std::optional<std::uint64_t> cgroup_memory_left(std::string_view membership, const std::string& root);

}  // namespace quire
