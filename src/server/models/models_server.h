#pragma once
// Serves several models on one port. Each model runs in a process of `quire serve`, which is started when a request needs it.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/logger.h"
#include "quire/server.h"
#include "quire/server_options.h"
#include "server/models/model_entry.h"

namespace quire {

// Used on one thread.
class ModelsServer {
 public:
  // `environment` has variables for the processes, "NAME=VALUE". `logger` must outlive the server. Errors: `io`, and the errors of
  // ServerOptions::validate().
  static Result<std::unique_ptr<ModelsServer>> create(ModelsOptions models, const ServerOptions& options,
                                                      std::vector<std::string> environment, Logger& logger, BoundPort port);
  ~ModelsServer();
  ModelsServer(const ModelsServer&) = delete;
  ModelsServer& operator=(const ModelsServer&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  // Serves until SIGTERM or SIGINT. Then lets running requests end within drain_timeout_ms, and stops all processes.
  void run();

 private:
  struct Impl;
  explicit ModelsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
