#pragma once
// What the body of a request is read against.
#include <string_view>

#include "quire/server_options.h"
#include "server/request/served_model.h"

namespace quire {

struct RequestContext {
  const ServedModel& model;
  const ServerOptions& options;
  std::string_view tenant;  // whose it is
};

}  // namespace quire
