#pragma once
// The HTTP server of one engine, with the OpenAI API. It runs on one thread with one io_context.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/logger.h"
#include "quire/engine.h"
#include "quire/server_options.h"

namespace quire {

// A bound TCP port that does not listen, so clients are refused. A program binds the port before it loads a model, so that a port in use is
// an error within milliseconds. If two processes bind the same port and neither listens yet, the error of the second is reported when it
// listens.
class QUIRE_API BoundPort {
 public:
  // Binds ServerOptions::host and port. Errors: `invalid_argument` (the host is not an IP address), `io` (the port is in use or reserved).
  static Result<BoundPort> bind(const ServerOptions& options);

  ~BoundPort();
  BoundPort(BoundPort&& other) noexcept : descriptor_(other.release()), is_v6_(other.is_v6_) {}
  BoundPort(const BoundPort&) = delete;
  BoundPort& operator=(const BoundPort&) = delete;
  BoundPort& operator=(BoundPort&&) = delete;

  // Returns the socket. The caller closes it.
  int release() { return std::exchange(descriptor_, -1); }
  [[nodiscard]] bool is_v6() const { return is_v6_; }

 private:
  BoundPort(int descriptor, bool is_v6) : descriptor_(descriptor), is_v6_(is_v6) {}

  int descriptor_;  // -1: released
  bool is_v6_;
};

class QUIRE_API Server {
 public:
  // Creates a server that listens on `port`. `engine` and `logger` must outlive the server. If requests are still open, stop the engine
  // before you destroy the server. Errors: `io` (the address is in use), `invalid_argument`, and the errors of the model's tokenizer.
  static Result<std::unique_ptr<Server>> create(Engine& engine, const ServerOptions& options, Logger& logger, BoundPort port);
  // Binds the port of `options` and creates the server.
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
