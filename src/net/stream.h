#pragma once
// A stream of bytes to a program elsewhere: TCP, a unix socket, or TLS over TCP. Nothing here waits, but the look-up of a host's name.
// Sockets are non-blocking; whoever uses one polls its descriptor.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quire/base/error.h"

struct addrinfo;
struct ssl_ctx_st;
struct ssl_st;
struct sockaddr;

namespace quire {

struct NetAddress {
  std::string host;  // empty with unix_path
  std::uint16_t port = 0;
  std::string unix_path;  // of a socket
  bool is_tls = false;
};

// What is the same of all TLS streams of a kind: which certificates are trusted. Without TLS it is empty.
class NetTls {
 public:
  // ca_file: certificates that are trusted; empty: those of the system. The versions are 1.2 and newer. Errors: `unsupported`, and
  // `invalid_argument` of the file, which name `field`.
  static Result<std::shared_ptr<const NetTls>> create(const std::string& ca_file, const char* field);
  NetTls() = default;
  ~NetTls();
  NetTls(const NetTls&) = delete;
  NetTls& operator=(const NetTls&) = delete;

  [[nodiscard]] ssl_ctx_st* context() const { return context_; }

 private:
  ssl_ctx_st* context_ = nullptr;
};

// One thread.
class NetStream {
 public:
  enum class State : std::uint8_t { opening, open, lost };

  // reaches: which of a host's addresses may be connected to; none: all. It is asked of what is connected to, not of another look-up.
  NetStream(NetAddress address, std::shared_ptr<const NetTls> tls, const std::function<bool(const sockaddr&)>& reaches = {});
  // One that somebody else has begun: what accept() gave, without waiting.
  explicit NetStream(int accepted);
  ~NetStream();
  NetStream(const NetStream&) = delete;
  NetStream& operator=(const NetStream&) = delete;

  // Also to the next address of a host that has several, when one is not there.
  State go_on();
  // 0: nothing now; < 0: lost.
  std::ptrdiff_t read(std::span<std::byte> into);
  std::ptrdiff_t write(std::span<const std::byte> from);

  // For poll(); -1: there is none.
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] short events(bool has_output) const;
  [[nodiscard]] const std::string& why_lost() const { return why_; }
  // Lost because the other side has said that this is all.
  [[nodiscard]] bool has_ended() const { return has_ended_; }

 private:
  enum class Waits : std::uint8_t { for_input, for_output };
  State lose(std::string why);
  bool resolve(const std::function<bool(const sockaddr&)>& reaches);
  bool begin(const sockaddr& address, std::size_t size);
  bool begin_unix();
  bool connect_next();
  bool begin_tls();
  std::ptrdiff_t after_tls(int result, Waits& waits);
  void close();

  struct FreeAddresses {
    void operator()(addrinfo* addresses) const;
  };

  const NetAddress address_;
  const std::shared_ptr<const NetTls> tls_;
  std::unique_ptr<addrinfo, FreeAddresses> addresses_;
  std::vector<const addrinfo*> reached_;  // in turn, the next one last
  int descriptor_ = -1;
  State state_ = State::opening;
  bool is_connecting_ = false, has_ended_ = false;
  ssl_st* ssl_ = nullptr;
  Waits read_waits_ = Waits::for_input, write_waits_ = Waits::for_output;  // with TLS each may wait for the other
  std::string why_;
};

}  // namespace quire
