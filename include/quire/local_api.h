#pragma once
// The API of the HTTP server within this process, without a port: the same routes, bodies and answers. For programs that embed an engine
// and want text, chats, tools and structured output, and for bindings of other languages (quire/quire.h).
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/logger.h"
#include "quire/engine.h"
#include "quire/server_options.h"

namespace quire {

// A call of a route, with the fields of an HTTP request.
struct LocalRequest {
  std::string method = "POST";
  std::string target;  // path and query: "/v1/chat/completions"
  std::string body{};  // JSON, or empty
};

// How a call has ended.
enum class LocalCallEnd : std::uint8_t {
  none,       // it continues
  complete,   // all bytes of the reply have been written
  cancelled,  // cancel() came first
  stopped     // LocalApi::stop() came first
};

// The next bytes of a reply, and whether more will follow.
struct LocalReplyPart {
  std::string bytes{};         // of the body, or events of a stream since the last part
  unsigned status = 0;         // HTTP status; 0: not known yet, or the call has ended without a reply
  std::string content_type{};  // set with `status`
  LocalCallEnd end = LocalCallEnd::none;
};

// A call in progress and its reply. Thread-safe. May outlive its LocalApi. The destructor cancels the call.
class QUIRE_API LocalCall {
 public:
  ~LocalCall();
  LocalCall(const LocalCall&) = delete;
  LocalCall& operator=(const LocalCall&) = delete;

  // Returns the part of answer ids after the prefix of the API: answers of /v1/completions have the id "cmpl-" + id().
  [[nodiscard]] const std::string& id() const;
  // Waits until the body has been read, and the engine has accepted or refused its requests. Returns false if that takes longer than
  // `timeout`; nullopt: no limit.
  bool wait_started(std::optional<std::chrono::milliseconds> timeout = std::nullopt) const;
  // Waits until the call has ended. Returns false if that takes longer than `timeout`; nullopt: no limit.
  bool wait_ended(std::optional<std::chrono::milliseconds> timeout = std::nullopt) const;
  // Waits until there are new bytes or the call has ended, at most for `timeout`, and takes them. Bytes are buffered until they are taken.
  LocalReplyPart take(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  // Ends the call, and aborts its requests in the engine. Does nothing after the end.
  void cancel();

 private:
  friend class LocalApi;
  struct QUIRE_HIDDEN State;
  explicit LocalCall(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// The API of one engine. One thread of this object runs all handlers. Callers are the operator of the engine: every route is allowed, and
// options about connections, keys, hosts and timeouts have no effect. Request bodies have no size limit.
class QUIRE_API LocalApi {
 public:
  // `engine` and `logger` must outlive this object. Errors: an option is out of range, and the errors of the model's tokenizer.
  static Result<std::unique_ptr<LocalApi>> create(Engine& engine, const ServerOptions& options, Logger& logger);

  // Stops. If the engine has not been stopped before, no call may be open, as with quire::Server.
  ~LocalApi();
  LocalApi(const LocalApi&) = delete;
  LocalApi& operator=(const LocalApi&) = delete;

  // Starts a call. Thread-safe; returns immediately. Errors in the request become replies with an HTTP status. Error: `shutting_down`
  // (stop() was called).
  Result<std::unique_ptr<LocalCall>> call(LocalRequest request);

  // Ends all calls, and joins the thread. Later calls are refused. Thread-safe and idempotent.
  void stop();

  // Returns the reason why chats are refused; empty: they are not refused.
  [[nodiscard]] std::string chat_problem() const;

 private:
  struct QUIRE_HIDDEN Impl;
  explicit LocalApi(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
