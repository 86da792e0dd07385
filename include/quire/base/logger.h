#pragma once
// Log lines: an event and its fields, as text ("request id=... status=200") or as one JSON object per line. A separate thread writes the
// lines. If the reader is too slow, the oldest lines are dropped, so logging never waits. All functions may be called on any thread.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "quire/base/api.h"

namespace quire {

enum class LogLevel : std::uint8_t { debug, info, warn, error, off };
enum class LogFormat : std::uint8_t { text, json };

// Options of a logger. The descriptor must stay open as long as the logger lives; the logger does not close it.
struct LogOptions {
  LogLevel level = LogLevel::info;
  LogFormat format = LogFormat::text;
  int descriptor = 2;              // stderr
  std::size_t queue_lines = 4096;  // maximum number of lines that wait to be written
  std::string process{};           // name of this process, the last field of each line; empty: no such field
};

// A named value in a log line.
struct LogField {
  std::string_view name;  // a literal of letters and underscores
  std::variant<std::string_view, std::uint64_t, double> value;
};

// Writes log lines to a descriptor without blocking its callers.
class QUIRE_API Logger {
 public:
  explicit Logger(const LogOptions& options);
  // Writes the queued lines for which the descriptor is ready, and drops the others.
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  // Returns true if lines of this level are written.
  [[nodiscard]] bool is_on(LogLevel level) const { return level >= level_; }
  // Writes one line. `event` is a literal; text in `fields` may contain any bytes. Do not log prompts, answers or keys. The calling thread
  // formats the line, queues it and returns immediately. A line below the level costs only a comparison.
  void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {}) {
    write_fields(level, event, {fields.begin(), fields.size()});
  }
  // Does the same with fields that the caller has collected.
  void write_fields(LogLevel level, std::string_view event, std::span<const LogField> fields);

  // Returns the number of lines that were dropped because the descriptor did not accept them in time.
  [[nodiscard]] std::uint64_t num_dropped() const;

 private:
  struct QUIRE_HIDDEN Impl;
  LogLevel level_;
  LogFormat format_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
