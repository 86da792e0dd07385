#pragma once
// One connection to a store that speaks RESP (Redis, Valkey, ...). Replies arrive in the order of the commands. hiredis parses the replies;
// a build without hiredis opens no connection (remote_connection_absent.cpp).
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
  status,  // "OK" in `text`
  integer,
  bytes,
  error,  // `text` is the message
  lost,   // no reply: the connection ended or timed out
  unsent  // the caller no longer needed the command before it was sent
};

// A view, valid until the next reply is read.
struct RemoteReply {
  RemoteReplyKind kind = RemoteReplyKind::lost;
  std::int64_t integer = 0;
  std::span<std::byte> bytes{};
  std::string_view text{};
};

// Returns an error on `kv_remote` if this build has no client.
Result<void> check_remote_client();

// Used by one thread. Replies are not trusted: a reply may have any kind, may have any length up to `max_reply_bytes`, and may arrive
// without a command.
class RemoteConnection {
 public:
  RemoteConnection(const RemoteAddress& address, std::shared_ptr<const NetTls> tls, std::uint64_t max_reply_bytes);
  ~RemoteConnection();
  RemoteConnection(const RemoteConnection&) = delete;
  RemoteConnection& operator=(const RemoteConnection&) = delete;

  // Queues a command. The command is sent when the connection is open, after the commands for user, password and database.
  void send(std::span<const std::string> words);
  // Writes and reads without waiting. Called when poll() reports events. Returns false if the connection is lost.
  bool advance();
  // Returns the next reply to a command of send(), or nullopt if no reply is left. Must be called until it returns nullopt before the next
  // advance(). is_lost() may be true afterwards.
  std::optional<RemoteReply> next();

  [[nodiscard]] bool is_lost() const;
  // Returns whether the connection was ever open, so that a store exists at the address.
  [[nodiscard]] bool has_opened() const;
  [[nodiscard]] const std::string& lost_reason() const;
  [[nodiscard]] int descriptor() const;
  [[nodiscard]] short events() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
