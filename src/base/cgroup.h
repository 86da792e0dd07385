#pragma once
// The control groups of this process: folders with the limits of a container or a service.
#include <string>
#include <string_view>
#include <vector>

namespace quire {

inline constexpr const char* kCgroupRoot = "/sys/fs/cgroup";

// Returns the text of /proc/self/cgroup; empty if the file does not exist.
std::string process_cgroups();

// Returns folders that may hold the limits of `controller` ("cpu", "memory"): the folders of each group and of the groups above it, where
// versions 1 and 2 would mount them under `root`. `membership` is a text like process_cgroups(). Many of the folders do not exist: a
// container sees its group as the root, and its membership may still name the host's path.
std::vector<std::string> cgroup_folders(std::string_view membership, std::string_view controller, const std::string& root);

}  // namespace quire
