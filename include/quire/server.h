#pragma once
// The HTTP server of one engine, with the OpenAI API. It runs on one thread with one io_context.
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
  // Creates a server that listens. `engine` and `logger` must outlive the server. If requests are still open, stop the engine before you
  // destroy the server. Errors: `io` (the address is in use), `invalid_argument`, and the errors of the model's tokenizer.
  static Result<std::unique_ptr<Server>> create(Engine& engine, const ServerOptions& options, Logger& logger);

  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  // Returns ServerOptions::max_connections, or fewer if the process's limit of open files allows only fewer.
  [[nodiscard]] std::uint32_t max_connections() const;
  // Returns the reason why the server rejects all chat requests; empty: it does not reject them.
  [[nodiscard]] std::string chat_problem() const;
  [[nodiscard]] const std::string& model_name() const;

  // Serves on the calling thread. Returns after request_stop(), when the running requests have ended or drain_timeout_ms has passed.
  // Requests that still run then are aborted.
  void run();

  // Stops the server. Callable on any thread. The first call lets running requests end; a second call stops immediately.
  void request_stop();

 private:
  struct QUIRE_HIDDEN Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
