#include "server/models/models_server.h"

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <utility>

#include "server/http/descriptors.h"
#include "server/http/listener.h"
#include "server/models/model_pool.h"
#include "server/models/models_router.h"

namespace quire {

namespace {

// Time from SIGTERM to SIGKILL for the processes of the models. Their requests have ended by then.
constexpr std::chrono::seconds kStopTime{20};

}  // namespace

// Members are destroyed in reverse order. Unfinished coroutines are destroyed with `io`, and use only the router and the options then.
struct ModelsServer::Impl {
  Impl(ModelsOptions given, const ServerOptions& server, std::vector<std::string> environment, Logger& log)
      : models(std::move(given)), options(server), logger(&log), pool_environment(std::move(environment)) {}

  ModelsOptions models;
  ServerOptions options;
  Logger* logger;
  std::vector<std::string> pool_environment;
  std::unique_ptr<ModelsRouter> router;
  boost::asio::io_context io{1};
  std::unique_ptr<ModelPool> pool;
  std::unique_ptr<Listener> listener;
};

ModelsServer::ModelsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelsServer::~ModelsServer() = default;

Result<std::unique_ptr<ModelsServer>> ModelsServer::create(ModelsOptions models, const ServerOptions& options,
                                                           std::vector<std::string> environment, Logger& logger, BoundPort port) {
  if (const auto valid = options.validate(); !valid) return std::unexpected(valid.error());
  auto impl = std::make_unique<Impl>(std::move(models), options, std::move(environment), logger);
  Impl& self = *impl;
  self.options.max_connections = fit_connections(options.max_connections, 2);  // a request also has a connection to its model
  self.pool = std::make_unique<ModelPool>(self.io, self.models, self.pool_environment, logger);
  self.router = std::make_unique<ModelsRouter>(self.io, *self.pool, self.options, logger);
  const auto on_drain = [&self] {
    self.router->drain();
    self.pool->refuse_waiting();
  };
  const auto on_end = [&self] { self.pool->stop(kStopTime, [&self] { self.io.stop(); }); };
  self.listener = std::make_unique<Listener>(self.io, *self.router, self.options, logger, Listener::Events{on_drain, on_end});
  if (const auto listening = self.listener->listen(std::move(port)); !listening) return std::unexpected(listening.error());
  return std::unique_ptr<ModelsServer>(new ModelsServer(std::move(impl)));
}

std::uint16_t ModelsServer::port() const {
  return impl_->listener->endpoint().port();
}

void ModelsServer::run() {
  impl_->listener->start(true);
  impl_->logger->write(
      LogLevel::info, "listening",
      {{"host", impl_->options.host}, {"port", std::uint64_t{port()}}, {"models", std::uint64_t{impl_->models.entries.size()}}});
  for (bool ended = false; !ended;) {
    try {
      impl_->io.run();
      ended = true;
    } catch (const std::exception&) {
      // The task that threw has failed; the other tasks continue.
      impl_->router->log().failed({}, std::current_exception());
    }
  }
  impl_->logger->write(LogLevel::info, "stopped");
}

}  // namespace quire
