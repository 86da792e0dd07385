#include "server/api/routes.h"

namespace quire {

std::string_view path_parameter(std::string_view route, std::string_view path) {
  if (route.ends_with("**")) {
    route.remove_suffix(2);
    return path.starts_with(route) ? path.substr(route.size()) : std::string_view();
  }
  const std::size_t star = route.find('*');
  const std::string_view before = route.substr(0, star), suffix = route.substr(star + 1);
  if (path.size() <= before.size() + suffix.size() || !path.starts_with(before) || !path.ends_with(suffix)) return {};
  const std::string_view name = path.substr(before.size(), path.size() - before.size() - suffix.size());
  return name.find('/') == std::string_view::npos ? name : std::string_view();
}

}  // namespace quire
