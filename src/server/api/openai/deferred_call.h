#pragma once
// A request whose start must wait for another operation: computing its hidden states, or a cache probe.
#include <memory>
#include <string>
#include <utility>

#include "server/api/serving.h"
#include "server/request/prepare.h"

namespace quire {

// Used on the server's thread. `pending` receives the reply if the client is still connected.
struct DeferredCall {
  Serving& serving;
  PreparedCompletion prepared;
  std::string request_id;
  std::weak_ptr<PendingReply> pending;
  Wake wake;

  void reply(Reply reply) const {
    if (const auto waiting = pending.lock()) waiting->reply = std::move(reply);
    wake();
  }
};

}  // namespace quire
