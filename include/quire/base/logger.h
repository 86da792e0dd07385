#pragma once
// Log lines: an event and its fields, as text ("request id=... status=200") or as one JSON object per line. They are written by a thread of
// the logger's own. Where nobody reads them the oldest are dropped: logging never waits. Any thread.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <variant>

#include "quire/base/api.h"

namespace quire {

enum class LogLevel : std::uint8_t { debug, info, warn, error, off };
enum class LogFormat : std::uint8_t { text, json };

// The descriptor is not closed by the logger, and must stay open as long as it lives.
struct LogOptions {
  LogLevel level = LogLevel::info;
  LogFormat format = LogFormat::text;
  int descriptor = 2;              // stderr
  std::size_t queue_lines = 4096;  // not written yet
};

struct LogField {
  std::string_view name;  // a literal: letters and underscores
  std::variant<std::string_view, std::uint64_t, double> value;
};

class QUIRE_API Logger {
 public:
  explicit Logger(const LogOptions& options);
  // Writes what is queued, as far as somebody reads it.
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  [[nodiscard]] bool is_on(LogLevel level) const { return level >= level_; }
  // One line. `event` is a literal; text may be any bytes. Never prompts, answers or keys.
  // Returns at once: the line is made on the calling thread and queued. Lines below the level cost a comparison.
  void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

  // Lines that were not written because nobody read them.
  [[nodiscard]] std::uint64_t num_dropped() const;

 private:
  struct QUIRE_HIDDEN Impl;
  LogLevel level_;
  LogFormat format_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
