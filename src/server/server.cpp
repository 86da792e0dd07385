// Implements the server's thread. run() accepts connections (server/http/listener.h) and runs the tasks that the engine and the job pool
// post, until a stop is requested and the last connection has ended. All state of the server except the job pool belongs to this
// thread. The thread must never wait for a client, a disk or the engine. quire/server.h describes the public members of Server.
#include "quire/server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "server/http/descriptors.h"
#include "server/http/job_pool.h"
#include "server/http/listener.h"
#include "server/pool_options.h"
#include "server/request/served_model.h"
#include "server/router.h"

namespace quire {

namespace asio = boost::asio;

// Members are destroyed in reverse order: first the job pool, then the io_context with its coroutines, which use the members before it.
struct Server::Impl {
  Impl(Engine& engine, std::unique_ptr<ServedModel> served, const ServerOptions& given, Logger& log)
      : options(given),
        logger(&log),
        model(std::move(served)),
        client(engine, [this](EngineClient::Task task) { asio::post(io, std::move(task)); }),
        router(client, *model, options, log, [this](JobPool::Lane lane, JobPool::Job job) { return jobs.submit(lane, std::move(job)); }) {}

  ServerOptions options;
  Logger* logger;
  std::unique_ptr<ServedModel> model;
  EngineClient client;
  Router router;
  // `io` must come after the router: the io_context's destructor destroys unfinished coroutines, whose connections use the router. The
  // members after `io` use it.
  asio::io_context io{1};
  JobPool jobs{io, pool_options(options)};
  Listener listener{io, router, options, *logger, {.on_drain = [this] { router.drain(); }, .on_end = [this] { io.stop(); }}};
};

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
  if (const auto listening = impl->listener.listen(std::move(port)); !listening) return std::unexpected(listening.error());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::uint16_t Server::port() const {
  return impl_->listener.endpoint().port();
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
  impl_->listener.start(impl_->options.handle_signals);
  impl_->logger->write(LogLevel::info, "listening",
                       {{"host", impl_->options.host}, {"port", std::uint64_t{port()}}, {"model", model_name()}});
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
  asio::post(impl_->io, [impl = impl_.get()] { impl->listener.stop(); });
}

}  // namespace quire
