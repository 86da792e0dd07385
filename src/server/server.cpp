// The server's thread: run() accepts connections, gives each to a Session, and carries out whatever the engine and the job pool post to it,
// until it has been told to stop and the last connection is over. Everything of the server but the job pool belongs to this thread; nothing
// on it may wait for a client, a disk or the engine. The public members of Server are described in quire/server.h.
#include "quire/server.h"

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

#include "server/http/connection_table.h"
#include "server/http/descriptors.h"
#include "server/http/error_response.h"
#include "server/http/job_pool.h"
#include "server/http/session.h"
#include "server/request/served_model.h"
#include "server/router.h"

namespace quire {

namespace asio = boost::asio;

// Each waits for one picture of a request that is elsewhere.
constexpr std::uint32_t kFetchingThreads = 4;
using asio::ip::tcp;

// Members in this order: at the end the jobs go first, then the io_context with the coroutines, which use what stands above it.
struct Server::Impl {
  Impl(Engine& engine, std::unique_ptr<ServedModel> served, const ServerOptions& given, Logger& log)
      : options(given),
        logger(&log),
        model(std::move(served)),
        client(engine, [this](EngineClient::Task task) { asio::post(io, std::move(task)); }),
        router(client, *model, options, log, [this](JobPool::Lane lane, JobPool::Function work, JobPool::Function done) {
          return jobs.submit(lane, std::move(work), std::move(done));
        }) {}

  Result<void> listen();
  asio::awaitable<void> accept();
  bool accept_with_spare();
  void add_session(tcp::socket socket);
  void turn_away(tcp::socket socket);
  void close_session(Session* session);
  void remove_session(Session* session);
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
  ConnectionTable sessions;
  // Open, so that with no descriptor left one more client can be heard.
  SpareDescriptor spare;
  bool draining = false;
  // Behind the router: with it go coroutines that have not ended, and their sessions refer to the router. Before those that use it, below.
  asio::io_context io{1};
  JobPool jobs{io,
               {.max_jobs = options.max_parse_queue,
                .num_fetching = options.allowed_media_domains.empty() ? 0 : kFetchingThreads,
                .low_priority = options.low_parse_priority}};
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
  if (!code) acceptor.non_blocking(true, code);
  if (code) {
    return fail(ErrorCode::io, "port", fmt::format("cannot listen on {}:{}: {}", options.host, options.port, code.message()),
                "choose another with --port");
  }
  return {};
}

asio::awaitable<void> Server::Impl::accept() {
  while (acceptor.is_open()) {
    boost::system::error_code code;
    co_await acceptor.async_wait(tcp::acceptor::wait_read, asio::redirect_error(asio::use_awaitable, code));
    if (!acceptor.is_open()) break;
    tcp::socket socket(io);
    acceptor.accept(socket, code);
    if (!code) {
      add_session(std::move(socket));
    } else if (code != asio::error::would_block && !accept_with_spare()) {
      // Accepting would fail again at once, and keep the thread busy.
      asio::steady_timer pause(io, std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, code));
    }
  }
}

// Without a descriptor for it, a client would hang in the backlog: an idle one goes, or this one is told.
bool Server::Impl::accept_with_spare() {
  spare.give_back();
  boost::system::error_code code;
  tcp::socket socket(io);
  acceptor.accept(socket, code);
  Session* least = sessions.least_needed();
  if (!code && least != nullptr) {
    close_session(least);
    add_session(std::move(socket));
  } else if (!code) {
    turn_away(std::move(socket));
  }
  spare.take();
  return !code;
}

void Server::Impl::turn_away(tcp::socket socket) {
  ++router.stats().connections_refused_total;
  ++router.stats().responses_total[503];
  const HttpResponse refusal =
      error_response(503, {ErrorCode::overloaded, "", "the server has as many clients as it can hold", "try again"});
  const std::string text = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: {}\r\nConnection: close\r\nContent-Length: "
      "{}\r\n\r\n{}",
      options.retry_after_s, refusal.body.size(), refusal.body);
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(text), ignored);
  // Closing with unread bytes resets the connection, and the answer could be lost.
  char unread[4096];
  socket.read_some(asio::buffer(unread), ignored);
}

void Server::Impl::add_session(tcp::socket socket) {
  ServerStats& stats = router.stats();
  if (sessions.size() >= options.max_connections) {
    Session* least = sessions.least_needed();
    if (least == nullptr) return turn_away(std::move(socket));
    close_session(least);
  }
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (options.send_buffer_bytes > 0)
    socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(options.send_buffer_bytes)), ignored);
  ++stats.connections_total;
  // Its events name the session, which is made with them.
  auto handle = std::make_shared<Session*>(nullptr);
  Session::Events events{[this, handle](ConnectionState state) { sessions.set_state(*handle, state); },
                         [this, handle] { remove_session(*handle); }};
  auto session = std::make_shared<Session>(std::move(socket), router, options, std::move(events));
  *handle = session.get();
  sessions.add(session.get());
  stats.num_connections = sessions.size();
  session->start();
}

void Server::Impl::close_session(Session* session) {
  ++router.stats().connections_given_up_total;
  session->close();
  sessions.remove(session);
}

void Server::Impl::remove_session(Session* session) {
  sessions.remove(session);
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

// The first time what is under way may end, within drain_timeout_ms; the second time, or then, everything is closed.
void Server::Impl::on_stop() {
  draining ? close_all() : drain();
}

void Server::Impl::drain() {
  draining = true;
  logger->write(LogLevel::info, "draining", {{"connections", std::uint64_t{sessions.size()}}});
  boost::system::error_code ignored;
  acceptor.close(ignored);
  router.drain();
  sessions.for_each([](Session* session) { session->drain(); });
  deadline.expires_after(std::chrono::milliseconds(options.drain_timeout_ms));
  deadline.async_wait([this](boost::system::error_code code) {
    if (!code) close_all();
  });
  end_if_idle();
}

void Server::Impl::close_all() {
  sessions.for_each([](Session* session) { session->close(); });
}

void Server::Impl::end_if_idle() {
  if (draining && sessions.size() == 0) io.stop();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(Engine& engine, const ServerOptions& options, Logger& logger) {
  if (const auto valid = options.validate(); !valid) return std::unexpected(valid.error());
  auto model = ServedModel::create(engine, options);
  if (!model) return std::unexpected(model.error());
  ServerOptions fitted = options;
  fitted.max_connections = fit_connections(options.max_connections);
  auto impl = std::make_unique<Impl>(engine, std::move(*model), fitted, logger);
  if (const auto listening = impl->listen(); !listening) return std::unexpected(listening.error());
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
  impl_->logger->write(LogLevel::info, "listening",
                       {{"host", impl_->options.host}, {"port", std::uint64_t{port()}}, {"model", model_name()}});
  asio::co_spawn(impl_->io, impl_->accept(), asio::detached);
  for (bool ended = false; !ended;) {
    try {
      impl_->io.run();
      ended = true;
    } catch (const std::exception&) {
      // One task failed; the others go on.
      impl_->router.log().failed({}, std::current_exception());
    }
  }
  impl_->logger->write(LogLevel::info, "stopped");
}

void Server::request_stop() {
  asio::post(impl_->io, [impl = impl_.get()] { impl->on_stop(); });
}

}  // namespace quire
