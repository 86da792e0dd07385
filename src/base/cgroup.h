#pragma once
// Finds the control groups of this process: folders with the limits of a container or a service.
#include <string>
#include <string_view>
#include <vector>

namespace quire {

inline constexpr const char* kCgroupRoot = "/sys/fs/cgroup";

// Returns the text of /proc/self/cgroup; empty if the file does not exist.
std::string process_cgroups();

// Returns folders that may contain the limits of `controller` ("cpu", "memory"): the folders of each group of the process and of its parent
// groups, at the paths where versions 1 and 2 would mount them under `root`. `membership` is a text like that of process_cgroups(). Many of
// the folders do not exist, because a container sees its own group as the root, while its membership may still contain the host's path.
std::vector<std::string> cgroup_folders(std::string_view membership, std::string_view controller, const std::string& root);

}  // namespace quire
