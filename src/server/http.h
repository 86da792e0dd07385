#pragma once
// A request and a response as values: what the handlers see of HTTP.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // path and query, as sent
  std::string authorization;
  std::string body;
  bool is_local = false;      // comes from this machine, and no proxy says that it speaks for another
  bool is_from_page = false;  // a browser sends it for a web page (Origin)

  [[nodiscard]] std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // besides Content-Type and Content-Length
};

}  // namespace quire
