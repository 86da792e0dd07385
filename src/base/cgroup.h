#pragma once
// The control groups of this process: folders with the limits of a container or a service.
#include <string>
#include <string_view>
#include <vector>

namespace quire {

inline constexpr const char* kCgroupRoot = "/sys/fs/cgroup";

// The text of /proc/self/cgroup; empty where there is none.
std::string own_cgroups();

// Folders that may hold the limits of `controller` ("cpu", "memory"): those of each group and of the groups above it, where versions 1 and
// 2 would mount them under `root`. `membership` is a text like own_cgroups(). Many of them do not exist: a container sees its own group as
// the root, and may still be told the host's path.
std::vector<std::string> cgroup_folders(std::string_view membership, std::string_view controller, const std::string& root);

}  // namespace quire
