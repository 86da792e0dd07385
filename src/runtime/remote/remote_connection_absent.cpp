// Replaces remote_connection.cpp in builds without hiredis. check_remote_client() refuses a configured store in the network, so the other
// functions are never called.
#include "runtime/remote/remote_connection.h"

namespace quire {

Result<void> check_remote_client() {
  return fail(ErrorCode::unsupported, "kv_remote", "this build does not include hiredis, the Redis client library",
              "install libhiredis-dev and build again, or leave this option out");
}

struct RemoteConnection::State {
  std::string why = "this build does not include hiredis";
};

RemoteConnection::RemoteConnection(const RemoteAddress& /*address*/, std::shared_ptr<const NetTls> /*tls*/,
                                   std::uint64_t /*max_reply_bytes*/)
    : state_(std::make_unique<State>()) {}

RemoteConnection::~RemoteConnection() = default;

void RemoteConnection::send(std::span<const std::string> /*words*/) {}

bool RemoteConnection::advance() {
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

const std::string& RemoteConnection::lost_reason() const {
  return state_->why;
}

int RemoteConnection::descriptor() const {
  return -1;
}

short RemoteConnection::events() const {
  return 0;
}

}  // namespace quire
