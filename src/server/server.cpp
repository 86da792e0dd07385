#include "server/server.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <csignal>
#include <unordered_set>

#include "server/session.h"

namespace quire {

namespace asio = boost::asio;
using asio::ip::tcp;

// Members in this order: the io_context goes first at the end and takes the coroutines with it, which use what stands above it.
struct Server::Impl {
  Impl(Engine& engine, std::unique_ptr<ServedModel> served, const ServerOptions& given)
      : options(given),
        model(std::move(served)),
        client(engine, [this](EngineClient::Task task) { asio::post(io, std::move(task)); }),
        router(client, *model, options) {}

  Result<void> listen();
  asio::awaitable<void> accept();
  void add_session(tcp::socket socket);
  void remove_session(Session* session);
  void wait_for_signals();
  void on_stop();
  void drain();
  void close_all();
  void end_if_idle();

  ServerOptions options;
  std::unique_ptr<ServedModel> model;
  EngineClient client;
  Router router;
  std::unordered_set<Session*> sessions;
  bool draining = false;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::signal_set signals{io};
  asio::steady_timer deadline{io};
};

Result<void> Server::Impl::listen() {
  boost::system::error_code code;
  const asio::ip::address address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, code);
  if (code)
    return fail(ErrorCode::invalid_argument, "host", fmt::format("'{}' is not an IP address", options.host),
                "use 127.0.0.1, 0.0.0.0 or ::");
  const tcp::endpoint endpoint(address, options.port);
  if (!code) acceptor.open(endpoint.protocol(), code);
  if (!code) acceptor.set_option(asio::socket_base::reuse_address(true), code);
  if (!code) acceptor.bind(endpoint, code);
  if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
  if (code) {
    return fail(ErrorCode::io, "port", fmt::format("cannot listen on {}:{}: {}", options.host, options.port, code.message()),
                "choose another with --port");
  }
  return {};
}

asio::awaitable<void> Server::Impl::accept() {
  while (acceptor.is_open()) {
    boost::system::error_code code;
    tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, code));
    if (!acceptor.is_open()) break;
    if (!code) {
      add_session(std::move(socket));
      continue;
    }
    // Out of descriptors, say: others will be given back.
    asio::steady_timer pause(io, std::chrono::milliseconds(100));
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, code));
  }
}

void Server::Impl::add_session(tcp::socket socket) {
  ServerStats& stats = router.stats();
  if (sessions.size() >= options.max_connections) {
    ++stats.connections_refused_total;
    return;
  }
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (options.send_buffer_bytes > 0)
    socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(options.send_buffer_bytes)), ignored);
  ++stats.connections_total;
  auto handle = std::make_shared<Session*>(nullptr);
  auto session = std::make_shared<Session>(std::move(socket), router, options, [this, handle] { remove_session(*handle); });
  *handle = session.get();
  sessions.insert(session.get());
  stats.num_connections = sessions.size();
  session->start();
}

void Server::Impl::remove_session(Session* session) {
  sessions.erase(session);
  router.stats().num_connections = sessions.size();
  end_if_idle();
}

void Server::Impl::wait_for_signals() {
  signals.async_wait([this](boost::system::error_code code, int /*number*/) {
    if (code) return;
    on_stop();
    wait_for_signals();
  });
}

void Server::Impl::on_stop() {
  draining ? close_all() : drain();
}

void Server::Impl::drain() {
  draining = true;
  boost::system::error_code ignored;
  acceptor.close(ignored);
  router.drain();
  for (Session* session : std::unordered_set<Session*>(sessions)) session->drain();
  deadline.expires_after(std::chrono::milliseconds(options.drain_timeout_ms));
  deadline.async_wait([this](boost::system::error_code code) {
    if (!code) close_all();
  });
  end_if_idle();
}

void Server::Impl::close_all() {
  for (Session* session : std::unordered_set<Session*>(sessions)) session->close();
}

void Server::Impl::end_if_idle() {
  if (draining && sessions.empty()) io.stop();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(Engine& engine, const ServerOptions& options) {
  if (const auto valid = options.validate(); !valid) return std::unexpected(valid.error());
  auto model = ServedModel::create(engine);
  if (!model) return std::unexpected(model.error());
  auto impl = std::make_unique<Impl>(engine, std::move(*model), options);
  if (const auto listening = impl->listen(); !listening) return std::unexpected(listening.error());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::uint16_t Server::port() const {
  boost::system::error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
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
  asio::co_spawn(impl_->io, impl_->accept(), asio::detached);
  impl_->io.run();
}

void Server::request_stop() {
  asio::post(impl_->io, [impl = impl_.get()] { impl->on_stop(); });
}

}  // namespace quire
