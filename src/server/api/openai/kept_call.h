#pragma once
// What is kept of a request while something else is done for it first: its hidden states, a look at the cache.
#include <memory>
#include <string>
#include <utility>

#include "server/api/serving.h"
#include "server/request/prepare.h"

namespace quire {

// Server's thread. Its answer is waited for by `pending`, if the client is still there.
struct KeptCall {
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
