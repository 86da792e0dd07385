#pragma once
// The reply of a handler to a request: an immediate response, a pending reply, or an answer in progress that is sent while it is generated.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/http.h"

namespace quire {

// The response header with the names of request fields that were ignored.
inline constexpr const char* kIgnoredFields = "X-Quire-Ignored-Fields";

// The Content-Type of a stream of server-sent events.
inline constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";

// Called whenever there is something new to send. Must stay callable during the lifetime of the answer.
using Wake = std::function<void()>;

// An answer in progress, as seen by the connection that sends it. Used on the server's thread only.
class AnswerSource {
 public:
  struct TokenCounts {
    std::uint64_t prompt = 0;
    std::uint64_t cached = 0;  // prompt tokens found in the prefix cache
    std::uint64_t output = 0;
  };

  AnswerSource() = default;
  AnswerSource(const AnswerSource&) = delete;
  AnswerSource& operator=(const AnswerSource&) = delete;
  virtual ~AnswerSource() = default;

  [[nodiscard]] virtual bool is_stream() const = 0;
  // Returns the Content-Type of a stream.
  [[nodiscard]] virtual std::string_view stream_content_type() const { return kEventStream; }
  [[nodiscard]] virtual bool finished() const = 0;
  // Returns whether the engine may still refuse the request. If refused() becomes true, take_response() returns the error, also for a
  // stream.
  [[nodiscard]] virtual bool may_be_refused() const = 0;
  [[nodiscard]] virtual bool refused() const = 0;

  // Returns headers of a stream in addition to its Content-Type.
  [[nodiscard]] virtual HttpHeaders stream_headers() const { return {}; }
  // Returns whether the stream has ended before it was complete. The connection then closes without the end of the stream.
  [[nodiscard]] virtual bool is_broken() const { return false; }

  // Returns the number of bytes of events that take_events() has not returned yet.
  [[nodiscard]] virtual std::size_t num_pending_bytes() const = 0;
  // Returns the number of bytes of all events so far that repeat prompts (echo). The client chooses their size, so they do not show that
  // the client reads too slowly.
  [[nodiscard]] virtual std::size_t num_echo_bytes() const = 0;
  [[nodiscard]] virtual std::string take_events() = 0;
  // Returns the body of a finished answer that is not a stream, or the error of a refused request.
  [[nodiscard]] virtual HttpResponse take_response() = 0;

  // Returns the names of the request's ignored fields, joined by commas.
  [[nodiscard]] virtual std::string ignored_fields() const = 0;
  // Returns the numbers of tokens so far.
  [[nodiscard]] virtual TokenCounts num_tokens() const = 0;

  // The progress and the parameters of an answer, for its trace span.
  struct Progress {
    std::chrono::duration<double> queued{};                         // time until the engine admitted the request; the longest of several
    std::optional<std::chrono::duration<double>> to_first_token{};  // time from submission to the first token
    float temperature = 0.0F, top_p = 1.0F;
    std::uint32_t max_tokens = 0, n = 1;
  };
  // Returns nullopt if the answer samples no tokens.
  [[nodiscard]] virtual std::optional<Progress> progress() const { return std::nullopt; }

  // Returns when a streaming session began to wait for more input from its client, or nullopt if it does not wait.
  [[nodiscard]] virtual std::optional<std::chrono::steady_clock::time_point> waiting_since() const = 0;
  // Ends the stream with an error, because the client has sent no input for too long.
  virtual void time_out() = 0;
  // Aborts all unfinished work of the answer.
  virtual void abort() = 0;
};

struct PendingReply;

// Exactly one of: an immediate response, an answer in progress, a pending reply. `response` is empty in the last two cases.
struct Reply {
  HttpResponse response;
  std::shared_ptr<AnswerSource> answer{};
  std::shared_ptr<PendingReply> pending{};
};

// A reply that the engine or the job pool has not finished yet.
struct PendingReply {
  std::optional<Reply> reply;
  std::atomic<bool> cancelled{false};  // the client has disconnected, so work need not begin
  std::shared_ptr<void> work{};        // the work in progress for this reply, destroyed together with the reply
};

}  // namespace quire
