#pragma once
// A stream of bytes to another program: TCP, a Unix socket, or TLS over TCP. Sockets are non-blocking; the user of a stream polls its
// descriptor. Only the look-up of a host name may wait.
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

// The address that a stream connects to.
struct NetAddress {
  std::string host;  // empty with unix_path
  std::uint16_t port = 0;
  std::string unix_path;  // path of a unix socket
  bool is_tls = false;
  std::string certificate_name{};  // host name that the certificate must have; empty: `host`
};

// Returns the file with the system's certificates if OpenSSL's default path has none; empty: use the default. The path of a packaged
// OpenSSL is the path on the system that built the package.
std::string system_certificate_file();

// The trusted certificates, which all TLS streams of one purpose share. Empty without TLS.
class NetTls {
 public:
  // Trusts the certificates in `ca_file`; empty: the system's certificates. Requires TLS 1.2 or newer. Errors: `unsupported`, and
  // `invalid_argument` if the file cannot be used. Both name `field`.
  static Result<std::shared_ptr<const NetTls>> create(const std::string& ca_file, const char* field);
  NetTls() = default;
  ~NetTls();
  NetTls(const NetTls&) = delete;
  NetTls& operator=(const NetTls&) = delete;

  [[nodiscard]] ssl_ctx_st* context() const { return context_; }

 private:
  ssl_ctx_st* context_ = nullptr;
};

// A stream that never waits. Used by one thread.
class NetStream {
 public:
  enum class State : std::uint8_t { opening, open, lost };

  // Begins to connect. `is_allowed_address` returns true for each address of the host to which the stream may connect; empty: all
  // addresses. It checks the addresses that are then used, not the result of a separate look-up.
  NetStream(NetAddress address, std::shared_ptr<const NetTls> tls, const std::function<bool(const sockaddr&)>& is_allowed_address = {});
  // Takes over a non-blocking socket from accept().
  explicit NetStream(int accepted);
  ~NetStream();
  NetStream(const NetStream&) = delete;
  NetStream& operator=(const NetStream&) = delete;

  // Continues to connect and returns the state. If an address of the host does not answer, tries the host's next address.
  State advance();
  // Return the number of bytes that were read or written; 0: none are possible now; < 0: the stream is lost.
  std::ptrdiff_t read(std::span<std::byte> into);
  std::ptrdiff_t write(std::span<const std::byte> from);

  // Returns the descriptor for poll(); -1: the stream has no descriptor.
  [[nodiscard]] int descriptor() const { return descriptor_; }
  // Returns the IP address of the other side, as text; empty: the stream is not open, or is a Unix socket.
  [[nodiscard]] std::string peer_address() const;
  // Returns the events for poll().
  [[nodiscard]] short events(bool has_output) const;
  [[nodiscard]] const std::string& lost_reason() const { return why_; }
  // Returns true if the stream is lost because the other side has closed it.
  [[nodiscard]] bool has_ended() const { return has_ended_; }

 private:
  enum class TlsWait : std::uint8_t { for_input, for_output };
  State lose(std::string why);
  bool resolve(const std::function<bool(const sockaddr&)>& is_allowed_address);
  bool begin(const sockaddr& address, std::size_t size);
  bool begin_unix();
  bool connect_next();
  bool begin_tls();
  std::ptrdiff_t handle_tls_result(int result, TlsWait& waits);
  void close();

  struct FreeAddresses {
    void operator()(addrinfo* addresses) const;
  };

  const NetAddress address_;
  const std::shared_ptr<const NetTls> tls_;
  std::unique_ptr<addrinfo, FreeAddresses> addresses_;
  std::vector<const addrinfo*> candidate_addresses_;  // addresses to try; the next address is last
  int descriptor_ = -1;
  State state_ = State::opening;
  bool is_connecting_ = false, has_ended_ = false;
  ssl_st* ssl_ = nullptr;
  TlsWait read_waits_ = TlsWait::for_input, write_waits_ = TlsWait::for_output;  // with TLS each may wait for the other direction
  std::string why_;
};

}  // namespace quire
