#pragma once
// How much memory this process may still take, which in a container is often less than the machine has.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// The smaller of what the machine has available (MemAvailable) and what the limits of this process's control groups leave. Read anew at
// each call; 0 where nothing can be read.
std::uint64_t usable_memory_bytes();

// What the tightest limit of a control group and the groups above it leaves, cached files counted as free; nothing where none is set.
// `membership` is the text of /proc/self/cgroup, `root` the folder /sys/fs/cgroup. Versions 1 and 2.
std::optional<std::uint64_t> cgroup_memory_left(std::string_view membership, const std::string& root);

}  // namespace quire
