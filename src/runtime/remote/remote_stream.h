#pragma once
// A stream of bytes to a store in the network: TCP, a unix socket, or TLS over TCP. Nothing here waits, but the look-up of a host's name.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "quire/base/error.h"
#include "runtime/remote/remote_address.h"

struct addrinfo;
struct ssl_ctx_st;
struct ssl_st;

namespace quire {

// What is the same of all TLS streams to a store: which certificates are trusted. Without TLS it is empty.
class RemoteTls {
 public:
  // Errors name `kv_remote_ca`.
  static Result<std::shared_ptr<const RemoteTls>> create(const RemoteAddress& address);
  RemoteTls() = default;
  ~RemoteTls();
  RemoteTls(const RemoteTls&) = delete;
  RemoteTls& operator=(const RemoteTls&) = delete;

  [[nodiscard]] ssl_ctx_st* context() const { return context_; }

 private:
  ssl_ctx_st* context_ = nullptr;
};

// One thread.
class RemoteStream {
 public:
  enum class State : std::uint8_t { opening, open, lost };

  RemoteStream(RemoteAddress address, std::shared_ptr<const RemoteTls> tls);
  // One that somebody else has begun: what accept() gave, without waiting.
  explicit RemoteStream(int accepted);
  ~RemoteStream();
  RemoteStream(const RemoteStream&) = delete;
  RemoteStream& operator=(const RemoteStream&) = delete;

  // Also to the next address of a host that has several, when one is not there.
  State go_on();
  // 0: nothing now; < 0: lost.
  std::ptrdiff_t read(std::span<std::byte> into);
  std::ptrdiff_t write(std::span<const std::byte> from);

  // For poll(); -1: there is none.
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] short events(bool has_output) const;
  [[nodiscard]] const std::string& why_lost() const { return why_; }

 private:
  enum class Waits : std::uint8_t { for_input, for_output };
  State lose(std::string why);
  bool resolve();
  bool connect_next();
  bool begin_tls();
  std::ptrdiff_t after_tls(int result, Waits& waits);
  void close();

  struct FreeAddresses {
    void operator()(addrinfo* addresses) const;
  };

  const RemoteAddress address_;
  const std::shared_ptr<const RemoteTls> tls_;
  std::unique_ptr<addrinfo, FreeAddresses> addresses_;
  const addrinfo* next_ = nullptr;
  int descriptor_ = -1;
  State state_ = State::opening;
  bool is_connecting_ = false;
  ssl_st* ssl_ = nullptr;
  Waits read_waits_ = Waits::for_input, write_waits_ = Waits::for_output;  // with TLS each may wait for the other
  std::string why_;
};

}  // namespace quire
