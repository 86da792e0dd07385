#include "server/api/routes.h"

namespace quire {

std::string_view name_in(std::string_view route, std::string_view path) {
  const std::size_t star = route.find('*');
  const std::string_view before = route.substr(0, star), behind = route.substr(star + 1);
  if (path.size() <= before.size() + behind.size() || !path.starts_with(before) || !path.ends_with(behind)) return {};
  const std::string_view name = path.substr(before.size(), path.size() - before.size() - behind.size());
  return name.find('/') == std::string_view::npos ? name : std::string_view();
}

}  // namespace quire
