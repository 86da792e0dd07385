// Implements the server's thread. run() accepts connections, creates a Connection for each, and runs the tasks that the engine and the job
// pool post, until a stop is requested and the last connection has ended. All state of the server except the job pool belongs to this
// thread. The thread must never wait for a client, a disk or the engine. quire/server.h describes the public members of Server.
#include "quire/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>

#include "server/http/awaitable.h"
#include "server/http/connection.h"
#include "server/http/connection_table.h"
#include "server/http/descriptors.h"
#include "server/http/error_response.h"
#include "server/pool_options.h"
#include "server/request/served_model.h"
#include "server/router.h"

namespace quire {

namespace asio = boost::asio;

using asio::ip::tcp;

// Members are destroyed in reverse order: first the job pool, then the io_context with its coroutines, which use the members before it.
struct Server::Impl {
  Impl(Engine& engine, std::unique_ptr<ServedModel> served, const ServerOptions& given, Logger& log)
      : options(given),
        logger(&log),
        model(std::move(served)),
        client(engine, [this](EngineClient::Task task) { asio::post(io, std::move(task)); }),
        router(client, *model, options, log, [this](JobPool::Lane lane, JobPool::Job job) { return jobs.submit(lane, std::move(job)); }) {}

  Result<void> listen(BoundPort port);
  asio::awaitable<void> accept();
  bool accept_with_spare();
  void add_connection(tcp::socket socket);
  void reject_connection(tcp::socket socket);
  void close_connection(Connection* connection);
  void remove_connection(Connection* connection);
  void wait_for_signals();
  void on_stop();
  void drain();
  void close_all();
  void end_if_idle();

  ServerOptions options;
  Logger* logger;
  std::unique_ptr<ServedModel> model;
  EngineClient client;
  Router router;
  ConnectionTable connections{
      {.max_busy = options.max_connections - options.max_connections / 16, .limits_shares = !options.tenant_keys.empty()}};
  // A reserved descriptor, so that one more client can be accepted when no other descriptor is left.
  SpareDescriptor spare;
  bool draining = false;
  // `io` must come after the router: the io_context's destructor destroys unfinished coroutines, whose connections use the router. The
  // members after `io` use it.
  asio::io_context io{1};
  JobPool jobs{io, pool_options(options)};
  tcp::acceptor acceptor{io};
  asio::signal_set signals{io};
  asio::steady_timer deadline{io};
};

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

Result<void> Server::Impl::listen(BoundPort port) {
  boost::system::error_code code;
  acceptor.assign(port.is_v6() ? tcp::v6() : tcp::v4(), port.release(), code);
  if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
  if (!code) acceptor.non_blocking(true, code);
  if (code) return cannot_listen(options, code);
  return {};
}

asio::awaitable<void> Server::Impl::accept() {
  while (acceptor.is_open()) {
    boost::system::error_code code;
    co_await acceptor.async_wait(tcp::acceptor::wait_read, into(code));
    if (!acceptor.is_open()) break;
    tcp::socket socket(io);
    acceptor.accept(socket, code);
    if (!code) {
      add_connection(std::move(socket));
    } else if (code != asio::error::would_block && !accept_with_spare()) {
      // Pauses, because another attempt would fail immediately and keep the thread busy.
      asio::steady_timer pause(io, std::chrono::milliseconds(100));
      co_await pause.async_wait(into(code));
    }
  }
}

// Accepts a client when no other descriptor is free; it would otherwise wait in the backlog. Closes an idle connection to make room, or
// refuses the client.
bool Server::Impl::accept_with_spare() {
  spare.release();
  boost::system::error_code code;
  tcp::socket socket(io);
  acceptor.accept(socket, code);
  Connection* least = connections.choose_connection_to_close();
  if (!code && least != nullptr) {
    close_connection(least);
    add_connection(std::move(socket));
  } else if (!code) {
    reject_connection(std::move(socket));
  }
  spare.take();
  return !code;
}

void Server::Impl::reject_connection(tcp::socket socket) {
  ++router.stats().connections_refused_total;
  ++router.stats().responses_total[503];
  const HttpResponse refusal = error_response(503, {ErrorCode::overloaded, "", "the maximum number of connections is open", "try again"});
  const std::string text = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: {}\r\nConnection: close\r\nContent-Length: "
      "{}\r\n\r\n{}",
      options.retry_after_s, refusal.body.size(), refusal.body);
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(text), ignored);
  // Reads what the client has sent, because closing with unread bytes resets the connection, and the client might not get the response.
  char unread[4096];
  socket.read_some(asio::buffer(unread), ignored);
}

void Server::Impl::add_connection(tcp::socket socket) {
  ServerStats& stats = router.stats();
  if (connections.size() >= options.max_connections) {
    Connection* least = connections.choose_connection_to_close();
    if (least == nullptr) return reject_connection(std::move(socket));
    close_connection(least);
  }
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (options.send_buffer_bytes > 0)
    socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(options.send_buffer_bytes)), ignored);
  ++stats.connections_total;
  // Events use `handle`, because the connection is created after them.
  auto handle = std::make_shared<Connection*>(nullptr);
  Connection::Events events{[this, handle](ConnectionState state) { connections.set_state(*handle, state); },
                            [this, handle](const std::string& whose) { connections.set_client(*handle, whose); },
                            [this, handle] { return connections.has_room(*handle); }, [this, handle] { remove_connection(*handle); }};
  const auto peer = socket.remote_endpoint(ignored);
  auto connection = std::make_shared<Connection>(std::move(socket), router, options, std::move(events));
  *handle = connection.get();
  connections.add(connection.get(), peer.address().to_string());
  stats.num_connections = connections.size();
  connection->start();
}

void Server::Impl::close_connection(Connection* connection) {
  ++router.stats().connections_given_up_total;
  connection->close();
  connections.remove(connection);
}

void Server::Impl::remove_connection(Connection* connection) {
  connections.remove(connection);
  router.stats().num_connections = connections.size();
  end_if_idle();
}

void Server::Impl::wait_for_signals() {
  signals.async_wait([this](boost::system::error_code code, int /*number*/) {
    if (code) return;
    on_stop();
    wait_for_signals();
  });
}

// Stops the server. The first call lets requests in flight end within drain_timeout_ms. The second call, or the timeout, closes all
// connections.
void Server::Impl::on_stop() {
  draining ? close_all() : drain();
}

void Server::Impl::drain() {
  draining = true;
  logger->write(LogLevel::info, "draining", {{"connections", std::uint64_t{connections.size()}}});
  boost::system::error_code ignored;
  acceptor.close(ignored);
  router.drain();
  connections.for_each([](Connection* connection) { connection->drain(); });
  deadline.expires_after(std::chrono::milliseconds(options.drain_timeout_ms));
  deadline.async_wait([this](boost::system::error_code code) {
    if (!code) close_all();
  });
  end_if_idle();
}

void Server::Impl::close_all() {
  connections.for_each([](Connection* connection) { connection->close(); });
}

void Server::Impl::end_if_idle() {
  if (draining && connections.size() == 0) io.stop();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(Engine& engine, const ServerOptions& options, Logger& logger) {
  auto port = BoundPort::bind(options);
  if (!port) return std::unexpected(port.error());
  return create(engine, options, logger, *std::move(port));
}

Result<std::unique_ptr<Server>> Server::create(Engine& engine, const ServerOptions& options, Logger& logger, BoundPort port) {
  if (const auto valid = options.validate(); !valid) return std::unexpected(valid.error());
  auto model = ServedModel::create(engine, options);
  if (!model) return std::unexpected(model.error());
  ServerOptions fitted = options;
  fitted.max_connections = fit_connections(options.max_connections);
  auto impl = std::make_unique<Impl>(engine, std::move(*model), fitted, logger);
  if (const auto listening = impl->listen(std::move(port)); !listening) return std::unexpected(listening.error());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::uint16_t Server::port() const {
  boost::system::error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

std::uint32_t Server::max_connections() const {
  return impl_->options.max_connections;
}

std::string Server::chat_problem() const {
  return impl_->model->chat_problem();
}
const std::string& Server::model_name() const {
  return impl_->model->name();
}

void Server::run() {
  if (impl_->options.handle_signals) {
    impl_->signals.add(SIGTERM);
    impl_->signals.add(SIGINT);
    impl_->wait_for_signals();
  }
  const ServerOptions& options = impl_->options;
  if (options.api_key.empty() && options.tenant_keys.empty() && !impl_->acceptor.local_endpoint().address().is_loopback())
    impl_->logger->write(LogLevel::warn, "open_to_the_network",
                         {{"host", options.host},
                          {"risk", "anyone who can reach this address can use the model"},
                          {"remedy", "set --api-key or --tenant-keys-file; without a key, host names must be listed in --allowed-host"}});
  impl_->logger->write(LogLevel::info, "listening",
                       {{"host", impl_->options.host}, {"port", std::uint64_t{port()}}, {"model", model_name()}});
  asio::co_spawn(impl_->io, impl_->accept(), asio::detached);
  for (bool ended = false; !ended;) {
    try {
      impl_->io.run();
      ended = true;
    } catch (const std::exception&) {
      // The task that threw has failed; the other tasks continue.
      impl_->router.log().failed({}, std::current_exception());
    }
  }
  impl_->logger->write(LogLevel::info, "stopped");
}

void Server::request_stop() {
  asio::post(impl_->io, [impl = impl_.get()] { impl->on_stop(); });
}

}  // namespace quire
