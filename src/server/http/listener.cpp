// Runs on the server's thread. accept() creates a Connection for each client. If all connections are in use, a new client replaces an idle
// one or is refused. The thread must never wait for a client.
#include "server/http/listener.h"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "server/http/awaitable.h"
#include "server/http/error_response.h"

namespace quire {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

std::unexpected<Error> cannot_listen(const ServerOptions& options, const boost::system::error_code& code) {
  return fail(ErrorCode::io, "port", fmt::format("cannot listen on {}:{}: {}", options.host, options.port, code.message()),
              "choose another port with --port (0: any free port)");
}

}  // namespace

Result<BoundPort> BoundPort::bind(const ServerOptions& options) {
  boost::system::error_code code;
  const asio::ip::address address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, code);
  if (code)
    return fail(ErrorCode::invalid_argument, "host", fmt::format("'{}' is not an IP address", options.host),
                "use 127.0.0.1, 0.0.0.0 or ::");
  asio::io_context io;
  tcp::acceptor acceptor(io);
  const tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), code);
  if (!code) acceptor.set_option(asio::socket_base::reuse_address(true), code);
  if (!code) acceptor.bind(endpoint, code);
  if (code) return cannot_listen(options, code);
  return BoundPort(acceptor.release(), address.is_v6());
}

BoundPort::~BoundPort() {
  if (descriptor_ >= 0) close(descriptor_);
}

Listener::Listener(asio::io_context& io, RequestHandler& handler, const ServerOptions& options, Logger& logger, Events events)
    : io_(&io),
      handler_(&handler),
      options_(&options),
      logger_(&logger),
      events_(std::move(events)),
      connections_({.max_busy = options.max_connections - options.max_connections / 16, .limits_shares = !options.tenant_keys.empty()}),
      acceptor_(io),
      signals_(io),
      deadline_(io) {}

tcp::endpoint Listener::endpoint() const {
  boost::system::error_code ignored;
  return acceptor_.local_endpoint(ignored);
}

void Listener::start(bool handles_signals) {
  if (handles_signals) {
    signals_.add(SIGTERM);
    signals_.add(SIGINT);
    wait_for_signals();
  }
  if (options_->api_key.empty() && options_->tenant_keys.empty() && !endpoint().address().is_loopback())
    logger_->write(LogLevel::warn, "open_to_the_network",
                   {{"host", options_->host},
                    {"risk", "anyone who can reach this address can use the model"},
                    {"remedy", "set --api-key or --tenant-keys-file; without a key, host names must be listed in --allowed-host"}});
  asio::co_spawn(*io_, accept(), asio::detached);
}

Result<void> Listener::listen(BoundPort port) {
  boost::system::error_code code;
  acceptor_.assign(port.is_v6() ? tcp::v6() : tcp::v4(), port.release(), code);
  if (!code) acceptor_.listen(asio::socket_base::max_listen_connections, code);
  if (!code) acceptor_.non_blocking(true, code);
  if (code) return cannot_listen(*options_, code);
  return {};
}

asio::awaitable<void> Listener::accept() {
  while (acceptor_.is_open()) {
    boost::system::error_code code;
    co_await acceptor_.async_wait(tcp::acceptor::wait_read, into(code));
    if (!acceptor_.is_open()) break;
    tcp::socket socket(*io_);
    acceptor_.accept(socket, code);
    if (!code) {
      add_connection(std::move(socket));
    } else if (code != asio::error::would_block && !accept_with_spare()) {
      // Pauses, because another attempt would fail immediately and keep the thread busy.
      asio::steady_timer pause(*io_, std::chrono::milliseconds(100));
      co_await pause.async_wait(into(code));
    }
  }
}

// Accepts a client when no other descriptor is free; it would otherwise wait in the backlog. Closes an idle connection to make room, or
// refuses the client.
bool Listener::accept_with_spare() {
  spare_.release();
  boost::system::error_code code;
  tcp::socket socket(*io_);
  acceptor_.accept(socket, code);
  Connection* least = connections_.choose_connection_to_close();
  if (!code && least != nullptr) {
    close_connection(least);
    add_connection(std::move(socket));
  } else if (!code) {
    reject_connection(std::move(socket));
  }
  spare_.take();
  return !code;
}

void Listener::reject_connection(tcp::socket socket) {
  ++handler_->stats().connections_refused_total;
  ++handler_->stats().responses_total[503];
  const HttpResponse refusal = error_response(503, {ErrorCode::overloaded, "", "the maximum number of connections is open", "try again"});
  const std::string text = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: {}\r\nConnection: close\r\nContent-Length: "
      "{}\r\n\r\n{}",
      options_->retry_after_s, refusal.body.size(), refusal.body);
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(text), ignored);
  // Reads what the client has sent, because closing with unread bytes resets the connection, and the client might not get the response.
  char unread[4096];
  socket.read_some(asio::buffer(unread), ignored);
}

void Listener::add_connection(tcp::socket socket) {
  ServerStats& stats = handler_->stats();
  if (connections_.size() >= options_->max_connections) {
    Connection* least = connections_.choose_connection_to_close();
    if (least == nullptr) return reject_connection(std::move(socket));
    close_connection(least);
  }
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (options_->send_buffer_bytes > 0)
    socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(options_->send_buffer_bytes)), ignored);
  ++stats.connections_total;
  // Events use `handle`, because the connection is created after them.
  auto handle = std::make_shared<Connection*>(nullptr);
  Connection::Events events{[this, handle](ConnectionState state) { connections_.set_state(*handle, state); },
                            [this, handle](const std::string& whose) { connections_.set_client(*handle, whose); },
                            [this, handle] { return connections_.has_room(*handle); }, [this, handle] { remove_connection(*handle); }};
  const auto peer = socket.remote_endpoint(ignored);
  auto connection = std::make_shared<Connection>(std::move(socket), *handler_, *options_, std::move(events));
  *handle = connection.get();
  connections_.add(connection.get(), peer.address().to_string());
  stats.num_connections = connections_.size();
  connection->start();
}

void Listener::close_connection(Connection* connection) {
  ++handler_->stats().connections_given_up_total;
  connection->close();
  connections_.remove(connection);
}

void Listener::remove_connection(Connection* connection) {
  connections_.remove(connection);
  handler_->stats().num_connections = connections_.size();
  end_if_idle();
}

void Listener::wait_for_signals() {
  signals_.async_wait([this](boost::system::error_code code, int /*number*/) {
    if (code) return;
    stop();
    wait_for_signals();
  });
}

void Listener::stop() {
  is_draining_ ? close_all() : drain();
}

void Listener::drain() {
  is_draining_ = true;
  logger_->write(LogLevel::info, "draining", {{"connections", std::uint64_t{connections_.size()}}});
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  events_.on_drain();
  connections_.for_each([](Connection* connection) { connection->drain(); });
  deadline_.expires_after(std::chrono::milliseconds(options_->drain_timeout_ms));
  deadline_.async_wait([this](boost::system::error_code code) {
    if (!code) close_all();
  });
  end_if_idle();
}

void Listener::close_all() {
  connections_.for_each([](Connection* connection) { connection->close(); });
}

void Listener::end_if_idle() {
  if (is_draining_ && connections_.size() == 0 && events_.on_end) std::exchange(events_.on_end, nullptr)();
}

}  // namespace quire
