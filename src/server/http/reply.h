#pragma once
// What a handler gives back for a request: an answer at once, one that is still to come, or one under way that is sent as it comes.
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

// Called whenever there is something new to send; callable as long as what it was given for lives.
using Wake = std::function<void()>;

// An answer under way, as the connection sees it that sends it. Server's thread only.
class AnswerSource {
 public:
  struct TokenCounts {
    std::uint64_t prompt = 0;
    std::uint64_t cached = 0;  // of the prompt's, found in the prefix cache
    std::uint64_t output = 0;
  };

  AnswerSource() = default;
  AnswerSource(const AnswerSource&) = delete;
  AnswerSource& operator=(const AnswerSource&) = delete;
  virtual ~AnswerSource() = default;

  [[nodiscard]] virtual bool is_stream() const = 0;
  [[nodiscard]] virtual bool finished() const = 0;
  // It may yet turn out that what was asked for cannot be done: then take_response() says so, also of a stream.
  [[nodiscard]] virtual bool may_be_refused() const = 0;
  [[nodiscard]] virtual bool refused() const = 0;

  // Streams: events not taken yet.
  [[nodiscard]] virtual std::size_t num_pending_bytes() const = 0;
  // Of all events so far, those that repeat prompts: their size is the client's own doing and says nothing about how it reads.
  [[nodiscard]] virtual std::size_t num_echo_bytes() const = 0;
  [[nodiscard]] virtual std::string take_events() = 0;
  // Whole answers, once finished, and refusals.
  [[nodiscard]] virtual HttpResponse take_response() = 0;

  // Of the request's fields, joined by commas.
  [[nodiscard]] virtual std::string ignored_fields() const = 0;
  // So far.
  [[nodiscard]] virtual TokenCounts num_tokens() const = 0;

  // How far it has come, and what was asked for, as a trace tells it.
  struct Progress {
    std::chrono::duration<double> queued{};                         // until the engine admitted it; of several, the longest
    std::optional<std::chrono::duration<double>> to_first_token{};  // from the beginning of `queued`
    float temperature = 0.0F, top_p = 1.0F;
    std::uint32_t max_tokens = 0, n = 1;
  };
  // Nothing: no tokens are drawn.
  [[nodiscard]] virtual std::optional<Progress> progress() const { return std::nullopt; }

  // Of one that waits for its client to say more: since when.
  [[nodiscard]] virtual std::optional<std::chrono::steady_clock::time_point> waits_since() const = 0;
  // It has waited too long: the stream ends with an error.
  virtual void time_out() = 0;
  // Ends what still runs.
  virtual void abort() = 0;
};

struct PendingReply;

// An answer at once, or one under way: then `response` is empty.
struct Reply {
  HttpResponse response;
  std::shared_ptr<AnswerSource> answer{};
  std::shared_ptr<PendingReply> pending{};
};

// What the engine or the job pool has still to say.
struct PendingReply {
  std::optional<Reply> reply;
  std::atomic<bool> cancelled{false};  // the client has gone: not worth beginning
  std::shared_ptr<void> work{};        // goes with this: what is under way for it
};

}  // namespace quire
