#pragma once
// What the body of a request is read against.
#include <string_view>

#include "quire/server_options.h"

namespace quire {

class ServedModel;

struct RequestContext {
  const ServedModel& model;
  const ServerOptions& options;
  std::string_view tenant;     // whose it is
  std::string_view session{};  // HttpRequest::session
  bool is_beta = false;        // HttpRequest::is_beta
};

}  // namespace quire
