#pragma once
// Splits a stream of server-sent events, which arrives in parts of any size, into the data of its events.
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace quire {

// Lines end with LF or CR LF. Comments and fields other than `data` are skipped. Used by one thread.
class EventSplitter {
 public:
  using Take = std::function<void(std::string_view data)>;

  // Calls `take` with the data of each event that `bytes` completes. The data is valid during the call. After an event of more than 16 MiB,
  // is_too_long() is true and all bytes are ignored.
  void feed(std::string_view bytes, const Take& take);
  // Ends the stream: the last event need not be followed by an empty line.
  void finish(const Take& take);
  [[nodiscard]] bool is_too_long() const { return is_too_long_; }

 private:
  void take_line(std::string_view line, const Take& take);
  void end_event(const Take& take);

  std::string line_;  // the beginning of an incomplete line
  std::string data_;  // the data of an incomplete event
  bool has_data_ = false, is_too_long_ = false;
};

}  // namespace quire
