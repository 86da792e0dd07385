#pragma once
// The memory that this process may use, in total and now. In a container both are often smaller than the memory of the machine.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// Returns the smaller of two values: the machine's available memory (MemAvailable), and the memory that the limits of this process's
// control groups leave. Each call reads the system again. Returns 0 if nothing can be read.
std::uint64_t usable_memory_bytes();

// Returns the smaller of two values: the machine's memory (MemTotal), and the limits of this process's control groups. Memory that is in
// use is included. Returns 0 if nothing can be read.
std::uint64_t total_memory_bytes();

// Returns the smallest memory limit of a control group and its parent groups, in bytes; nullopt if no limit is set. Takes the arguments of
// cgroup_memory_left().
std::optional<std::uint64_t> cgroup_memory_limit(std::string_view membership, const std::string& root);

// Returns the smallest number of bytes that the limits of a control group and its parent groups leave. Cached files count as free. nullopt:
// no limit is set. `membership` is the text of /proc/self/cgroup, and `root` is the folder /sys/fs/cgroup. Supports versions 1 and 2.
std::optional<std::uint64_t> cgroup_memory_left(std::string_view membership, const std::string& root);

}  // namespace quire
