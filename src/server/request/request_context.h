#pragma once
// The model, options and client that the reader of a request's body needs.
#include <string_view>

#include "quire/base/cancellation_point.h"
#include "quire/server_options.h"

namespace quire {

class ServedModel;

struct RequestContext {
  const ServedModel& model;
  const ServerOptions& options;
  std::string_view tenant;                          // the request's tenant
  std::string_view session{};                       // HttpRequest::session
  bool is_beta = false;                             // HttpRequest::is_beta
  const CancellationPoint* cancellation = nullptr;  // called by work that may take long; null: the work is not interrupted
};

}  // namespace quire
