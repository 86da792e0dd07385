#pragma once
// One connection to a store that speaks RESP (Redis, Valkey, ...): commands go out one after the other, replies come back in that order.
// Replies are read by hiredis; where the build has none, nothing is opened (remote_connection_absent.cpp).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "net/stream.h"
#include "quire/base/error.h"
#include "runtime/remote/remote_address.h"

namespace quire {

enum class RemoteReplyKind : std::uint8_t {
  nil,
  status,  // "OK", in `text`
  integer,
  bytes,
  error,  // `text` says which
  lost,   // none came: the connection ended, or took too long
  unsent  // nobody wants it any more
};

// A view, valid until the next reply is asked for.
struct RemoteReply {
  RemoteReplyKind kind = RemoteReplyKind::lost;
  std::int64_t integer = 0;
  std::span<std::byte> bytes{};
  std::string_view text{};
};

// Errors: `kv_remote`, this build has no client.
Result<void> check_remote_client();

// One thread. A reply is believed in nothing: it may have any kind and length up to `max_reply_bytes`, and come unasked.
class RemoteConnection {
 public:
  RemoteConnection(const RemoteAddress& address, std::shared_ptr<const NetTls> tls, std::uint64_t max_reply_bytes);
  ~RemoteConnection();
  RemoteConnection(const RemoteConnection&) = delete;
  RemoteConnection& operator=(const RemoteConnection&) = delete;

  // Queues a command; sent when the connection is there, and user, password and database are.
  void send(std::span<const std::string> words);
  // When poll() says so: writes and reads what can be at once. false: it is lost.
  bool go_on();
  // The next reply that has come to a command of send(). Until none is left, before go_on() again; then is_lost() may be true as well.
  std::optional<RemoteReply> next();

  [[nodiscard]] bool is_lost() const;
  // It once was open: what it reached is a store.
  [[nodiscard]] bool has_opened() const;
  [[nodiscard]] const std::string& why_lost() const;
  [[nodiscard]] int descriptor() const;
  [[nodiscard]] short events() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
