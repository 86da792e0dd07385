#include "base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace quire {
namespace {

// Returns the folders where the group of one membership line may be mounted. A line is ID:CONTROLLERS:PATH. In version 2, CONTROLLERS is
// empty. Version 1 mounts each controller under its name.
std::vector<std::string> mounts_of(std::string_view controllers, const std::string& controller, const std::string& root) {
  if (controllers.empty()) return {root, root + "/unified"};
  const std::string padded = "," + std::string(controllers) + ",";
  if (padded.find("," + controller + ",") == std::string::npos) return {};
  return {root + "/" + std::string(controllers), root + "/" + controller};
}

}  // namespace

std::string process_cgroups() {
  std::ifstream in("/proc/self/cgroup");
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> cgroup_folders(std::string_view membership, std::string_view controller, const std::string& root) {
  std::vector<std::string> folders;
  while (!membership.empty()) {
    const std::string_view line = membership.substr(0, membership.find('\n'));
    membership.remove_prefix(std::min(line.size() + 1, membership.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    for (const std::string& mount : mounts_of(line.substr(first + 1, second - first - 1), std::string(controller), root)) {
      std::string path(line.substr(second + 1));
      for (; !path.empty(); path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/')))
        folders.push_back(mount + path);
      folders.push_back(mount);
    }
  }
  return folders;
}

}  // namespace quire
