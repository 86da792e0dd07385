#pragma once
// Reads the answer to one request of OpenAI's completions or chat API, as a stream of events, and measures it.
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "traffic/event_splitter.h"
#include "traffic/request_record.h"

namespace quire {

// Used by one thread. The server is not trusted: any bytes give a completed or a failed request.
class AnswerReader {
 public:
  using Clock = std::chrono::steady_clock;

  explicit AnswerReader(Clock::time_point sent) : sent_(sent) {}

  // Takes a part of the body, which arrived at `now`. `status` is the status of the answer.
  void take(unsigned status, std::string_view body, Clock::time_point now);
  // Ends the answer, whose body is complete, at `now`. Returns its record, without sent_s.
  RequestRecord finish(unsigned status, Clock::time_point now);
  // Ends the answer with a failure of the connection.
  RequestRecord fail(std::string reason, Clock::time_point now);

 private:
  void take_event(std::string_view data, Clock::time_point now);
  void take_chunk(bool has_text, Clock::time_point now);
  void set_failure(std::string reason);

  Clock::time_point sent_, first_{}, last_text_{}, last_{};
  EventSplitter events_;
  RequestRecord record_;
  std::string error_body_;  // the beginning of the body of an answer that is not a stream
  std::uint32_t num_chunks_ = 0;
  bool has_events_ = false, has_chunk_ = false, has_text_ = false, has_finish_ = false;
};

}  // namespace quire
