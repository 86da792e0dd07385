// Builds without hiredis: stores in the network are refused where they are asked for, and nobody comes to the rest.
#include "runtime/remote/remote_connection.h"

namespace quire {

Result<void> check_remote_client() {
  return fail(ErrorCode::unsupported, "kv_remote", "this build has no hiredis, which speaks with such stores",
              "build with libhiredis-dev installed, or do without");
}

struct RemoteConnection::State {
  std::string why = "this build has no hiredis";
};

RemoteConnection::RemoteConnection(const RemoteAddress& /*address*/, std::shared_ptr<const NetTls> /*tls*/,
                                   std::uint64_t /*max_reply_bytes*/)
    : state_(std::make_unique<State>()) {}

RemoteConnection::~RemoteConnection() = default;

void RemoteConnection::send(std::span<const std::string> /*words*/) {}

bool RemoteConnection::go_on() {
  return false;
}

std::optional<RemoteReply> RemoteConnection::next() {
  return std::nullopt;
}

bool RemoteConnection::is_lost() const {
  return true;
}

bool RemoteConnection::has_opened() const {
  return false;
}

const std::string& RemoteConnection::why_lost() const {
  return state_->why;
}

int RemoteConnection::descriptor() const {
  return -1;
}

short RemoteConnection::events() const {
  return 0;
}

}  // namespace quire
