// Sockets that never wait. One thread uses a stream: it polls the descriptor and then calls the stream again. That thread either serves a
// connection to a store or another server (runtime/remote), or fetches something (net/timed_stream.h). Any error ends the stream; its user
// then creates another stream.
#include "net/stream.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace quire {
namespace {

constexpr const char* kAddressesNotAllowed = "connections to the addresses of this host are not allowed";

// Blocks SIGPIPE for its thread while the object lives, so that writing to a closed connection is an error and not a signal. (OpenSSL calls
// write() itself.)
class SigpipeGuard {
 public:
  SigpipeGuard() {
    sigset_t pending;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
    was_pending_ = sigismember(&pending, SIGPIPE) != 0;
  }
  ~SigpipeGuard() {
    constexpr timespec kNow{};
    while (!was_pending_ && sigtimedwait(&signal_, nullptr, &kNow) == -1 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t signal_{}, before_{};
  bool was_pending_ = false;  // the signal was pending before and must stay so
};

std::string tls_problem() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "the connection was closed";
  const char* const reason = ERR_reason_error_string(code);
  return reason == nullptr ? "unknown error" : reason;
}

std::string problem_of(int error) {
  return std::generic_category().message(error);
}

}  // namespace

std::string system_certificate_file() {
  const auto exists = [](const char* path) {
    std::error_code error;
    return path != nullptr && std::filesystem::exists(path, error);
  };
  if (std::getenv(X509_get_default_cert_file_env()) != nullptr || std::getenv(X509_get_default_cert_dir_env()) != nullptr) return {};
  if (exists(X509_get_default_cert_file())) return {};
  constexpr std::array kKnown{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                              "/etc/ssl/cert.pem"};
  for (const char* path : kKnown)
    if (exists(path)) return path;
  return {};
}

Result<std::shared_ptr<const NetTls>> NetTls::create(const std::string& ca_file, const char* field) {
  auto tls = std::make_shared<NetTls>();
  tls->context_ = SSL_CTX_new(TLS_client_method());
  if (tls->context_ == nullptr)
    return fail(ErrorCode::unsupported, field, "cannot create a TLS context: " + tls_problem(),
                "check the configuration of OpenSSL (openssl.cnf)");
  SSL_CTX_set_min_proto_version(tls->context_, TLS1_2_VERSION);
  SSL_CTX_set_verify(tls->context_, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(tls->context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  const bool is_loaded = ca_file.empty() ? SSL_CTX_set_default_verify_paths(tls->context_) == 1
                                         : SSL_CTX_load_verify_locations(tls->context_, ca_file.c_str(), nullptr) == 1;
  if (!is_loaded)
    return fail(ErrorCode::invalid_argument, field, fmt::format("{}: {}", ca_file, tls_problem()), "use a file with PEM certificates");
  return tls;
}

NetTls::~NetTls() {
  SSL_CTX_free(context_);
}

void NetStream::FreeAddresses::operator()(addrinfo* addresses) const {
  freeaddrinfo(addresses);
}

NetStream::NetStream(NetAddress address, std::shared_ptr<const NetTls> tls, const std::function<bool(const sockaddr&)>& is_allowed_address)
    : address_(std::move(address)), tls_(std::move(tls)) {
  if (!resolve(is_allowed_address) || !connect_next()) state_ = State::lost;
}

NetStream::NetStream(int accepted) : tls_(std::make_shared<NetTls>()), descriptor_(accepted), state_(State::open) {
  const int is_on = 1;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &is_on, sizeof is_on);
}

NetStream::~NetStream() {
  close();
}

void NetStream::close() {
  SSL_free(std::exchange(ssl_, nullptr));
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

NetStream::State NetStream::lose(std::string why) {
  close();
  why_ = std::move(why);
  return state_ = State::lost;
}

bool NetStream::resolve(const std::function<bool(const sockaddr&)>& is_allowed_address) {
  if (!address_.unix_path.empty()) return true;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address_.host.c_str(), std::to_string(address_.port).c_str(), &wanted, &found);
  if (error != 0) {
    why_ = fmt::format("{}: {}", address_.host, gai_strerror(error));
    return false;
  }
  addresses_.reset(found);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next)
    if (!is_allowed_address || is_allowed_address(*one->ai_addr)) candidate_addresses_.insert(candidate_addresses_.begin(), one);
  if (candidate_addresses_.empty()) why_ = kAddressesNotAllowed;
  return !candidate_addresses_.empty();
}

// Begins to connect. On an error returns false and sets why_.
bool NetStream::begin(const sockaddr& address, std::size_t size) {
  descriptor_ = socket(address.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor_ >= 0) {
    const int is_on = 1;
    if (address.sa_family != AF_UNIX) setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &is_on, sizeof is_on);
    if (connect(descriptor_, &address, static_cast<socklen_t>(size)) == 0 || errno == EINPROGRESS) return true;
  }
  why_ = problem_of(errno);
  close();
  return false;
}

bool NetStream::begin_unix() {
  sockaddr_un address{};
  if (address_.unix_path.size() >= sizeof address.sun_path) {
    why_ = "the path of the Unix socket is too long";
    return false;
  }
  address.sun_family = AF_UNIX;
  std::ranges::copy(address_.unix_path, address.sun_path);
  return begin(reinterpret_cast<const sockaddr&>(address), sizeof address);
}

// Tries the remaining addresses in order until the beginning of a connection succeeds.
bool NetStream::connect_next() {
  close();
  is_connecting_ = !address_.unix_path.empty() && why_.empty() && begin_unix();
  while (!is_connecting_ && !candidate_addresses_.empty()) {
    const addrinfo& next = *candidate_addresses_.back();
    candidate_addresses_.pop_back();
    is_connecting_ = begin(*next.ai_addr, next.ai_addrlen);
  }
  return is_connecting_;
}

NetStream::State NetStream::advance() {
  if (state_ != State::opening) return state_;
  if (is_connecting_) {
    pollfd connected{.fd = descriptor_, .events = POLLOUT, .revents = 0};
    if (poll(&connected, 1, 0) <= 0) return state_;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      why_ = problem_of(error);
      if (!connect_next()) return lose(why_);
      return state_;
    }
    is_connecting_ = false;
    if (address_.is_tls && !begin_tls()) return lose("TLS: " + tls_problem());
    if (!address_.is_tls) return state_ = State::open;
  }
  const SigpipeGuard sigpipe_guard;
  const int result = SSL_connect(ssl_);
  if (result == 1) return state_ = State::open;
  handle_tls_result(result, read_waits_);
  return state_;
}

bool NetStream::begin_tls() {
  ERR_clear_error();
  ssl_ = SSL_new(tls_->context());
  if (ssl_ == nullptr || SSL_set_fd(ssl_, descriptor_) != 1) return false;
  // If the host is an IP address, its certificate must be for that address.
  X509_VERIFY_PARAM* const verified = SSL_get0_param(ssl_);
  std::string name = address_.certificate_name.empty() ? address_.host : address_.certificate_name;
  if (X509_VERIFY_PARAM_set1_ip_asc(verified, name.c_str()) == 1) return true;
  ERR_clear_error();
  // SSL_set_tlsext_host_name is a macro with an old-style cast.
  return SSL_set1_host(ssl_, name.c_str()) == 1 &&
         SSL_ctrl(ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data()) == 1;
}

// Handles the result of an OpenSSL read or write. Returns 0 if OpenSSL waits for the socket, possibly in the other direction (`waits`), and
// < 0 if the stream is lost.
std::ptrdiff_t NetStream::handle_tls_result(int result, TlsWait& waits) {
  const int error = SSL_get_error(ssl_, result);
  waits = error == SSL_ERROR_WANT_READ ? TlsWait::for_input : TlsWait::for_output;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return 0;
  has_ended_ = error == SSL_ERROR_ZERO_RETURN;
  lose("TLS: " + tls_problem());
  return -1;
}

std::ptrdiff_t NetStream::read(std::span<std::byte> into) {
  if (state_ != State::open) return state_ == State::lost ? -1 : 0;
  if (ssl_ != nullptr) {
    ERR_clear_error();
    read_waits_ = TlsWait::for_input;
    const int num_read = SSL_read(ssl_, into.data(), static_cast<int>(into.size()));
    return num_read > 0 ? num_read : handle_tls_result(num_read, read_waits_);
  }
  const ssize_t num_read = recv(descriptor_, into.data(), into.size(), 0);
  if (num_read > 0) return num_read;
  if (num_read < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  has_ended_ = num_read == 0;
  lose(has_ended_ ? "the connection was closed" : problem_of(errno));
  return -1;
}

std::ptrdiff_t NetStream::write(std::span<const std::byte> from) {
  if (state_ != State::open) return state_ == State::lost ? -1 : 0;
  if (ssl_ != nullptr) {
    const SigpipeGuard sigpipe_guard;
    ERR_clear_error();
    write_waits_ = TlsWait::for_output;
    const int num_written = SSL_write(ssl_, from.data(), static_cast<int>(from.size()));
    return num_written > 0 ? num_written : handle_tls_result(num_written, write_waits_);
  }
  const ssize_t num_written = send(descriptor_, from.data(), from.size(), MSG_NOSIGNAL);
  if (num_written >= 0) return num_written;
  if (errno == EAGAIN || errno == EINTR) return 0;
  lose(problem_of(errno));
  return -1;
}

std::string NetStream::peer_address() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  if (descriptor_ < 0 || getpeername(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) != 0 || address.ss_family == AF_UNIX ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return text.data();
}

short NetStream::events(bool has_output) const {
  if (state_ == State::opening && is_connecting_) return POLLOUT;
  const bool may_write = (has_output && state_ == State::open && write_waits_ == TlsWait::for_output) || read_waits_ == TlsWait::for_output;
  return static_cast<short>(POLLIN | (may_write ? POLLOUT : 0));
}

}  // namespace quire
