#pragma once
// The HTTP server: one thread, one io_context. Speaks the OpenAI API for one engine.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/logger.h"
#include "quire/engine.h"
#include "quire/server_options.h"

namespace quire {

class QUIRE_API Server {
 public:
  // Binds and listens. `engine` and `logger` must outlive this, and the engine must be stopped before this goes if requests are under way.
  // Errors: `io` (the address is taken), `invalid_argument`, and whatever the model's tokenizer says.
  static Result<std::unique_ptr<Server>> create(Engine& engine, const ServerOptions& options, Logger& logger);

  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  // max_connections, or what the limit of open files allows.
  [[nodiscard]] std::uint32_t max_connections() const;
  // Empty, or why chat requests will be refused.
  [[nodiscard]] std::string chat_problem() const;
  [[nodiscard]] const std::string& model_name() const;

  // Serves on the calling thread until it was asked to stop and the running requests have ended or drain_timeout_ms has passed; what
  // still ran is aborted.
  void run();

  // Any thread. The first call drains, the second ends at once.
  void request_stop();

 private:
  struct QUIRE_HIDDEN Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
