#pragma once
// The reply of a handler to a request: an immediate response, a pending reply, or an answer in progress that is sent as it arrives.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/http/http.h"

namespace quire {

// The response header with the names of request fields that were ignored.
inline constexpr const char* kIgnoredFields = "X-Quire-Ignored-Fields";

// Called whenever there is something new to send. It must stay callable as long as the answer lives.
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
  [[nodiscard]] virtual bool finished() const = 0;
  // Returns true while the request may still turn out to be impossible. If refused() becomes true, take_response() returns the refusal,
  // also for a stream.
  [[nodiscard]] virtual bool may_be_refused() const = 0;
  [[nodiscard]] virtual bool refused() const = 0;

  // Bytes of a stream's events that were not taken yet.
  [[nodiscard]] virtual std::size_t num_pending_bytes() const = 0;
  // Bytes of all events so far that repeat prompts. The client has chosen their size, so they say nothing about how fast it reads.
  [[nodiscard]] virtual std::size_t num_echo_bytes() const = 0;
  [[nodiscard]] virtual std::string take_events() = 0;
  // Returns the complete answer once it has finished, or the refusal.
  [[nodiscard]] virtual HttpResponse take_response() = 0;

  // Returns the names of the request's ignored fields, joined by commas.
  [[nodiscard]] virtual std::string ignored_fields() const = 0;
  // Returns the counts so far.
  [[nodiscard]] virtual TokenCounts num_tokens() const = 0;

  // Progress and parameters of an answer, for its span.
  struct Progress {
    std::chrono::duration<double> queued{};                         // until the engine admitted it; the longest of several
    std::optional<std::chrono::duration<double>> to_first_token{};  // since the beginning of `queued`
    float temperature = 0.0F, top_p = 1.0F;
    std::uint32_t max_tokens = 0, n = 1;
  };
  // Returns nullopt if no tokens are sampled.
  [[nodiscard]] virtual std::optional<Progress> progress() const { return std::nullopt; }

  // Returns since when a streaming session has waited for more input from its client; nullopt: it does not wait.
  [[nodiscard]] virtual std::optional<std::chrono::steady_clock::time_point> waiting_since() const = 0;
  // Ends the stream with an error, because the client has sent no input for too long.
  virtual void time_out() = 0;
  // Aborts all unfinished work of the answer.
  virtual void abort() = 0;
};

struct PendingReply;

// An immediate response, an answer in progress, or a pending reply. `response` is empty unless it is immediate.
struct Reply {
  HttpResponse response;
  std::shared_ptr<AnswerSource> answer{};
  std::shared_ptr<PendingReply> pending{};
};

// A reply that the engine or the job pool has not finished yet.
struct PendingReply {
  std::optional<Reply> reply;
  std::atomic<bool> cancelled{false};  // the client has disconnected: work need not begin
  std::shared_ptr<void> work{};        // the work in progress for this reply, released with it
};

}  // namespace quire
