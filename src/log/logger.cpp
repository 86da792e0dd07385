// Writes log lines through spdlog's asynchronous logger. Any thread may log. The logger's thread writes the lines, and waits at most 100 ms
// per line for the descriptor. Text from outside is made printable and truncated, so that a client can neither forge a line nor send
// control characters to a terminal.
#include "quire/base/logger.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <string>
#include <utility>

#include "base/append_format.h"
#include "base/json_writer.h"
#include "text/utf8.h"

namespace quire {

namespace {

constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

// Writes whole lines to a descriptor. A pipe that is ready accepts PIPE_BUF bytes without blocking, and lines are shorter. Used only on the
// logger's thread, except for hurry() and num_dropped().
class DescriptorSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit DescriptorSink(int descriptor) : descriptor_(descriptor) {}

  // Makes later writes drop lines that cannot be written immediately.
  void hurry() { wait_ms_.store(0); }
  [[nodiscard]] std::uint64_t num_dropped() const { return num_dropped_.load(); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    pollfd ready{.fd = descriptor_, .events = POLLOUT, .revents = 0};
    const bool writable = poll(&ready, 1, wait_ms_.load()) == 1 && (ready.revents & POLLOUT) != 0;
    if (!writable || write(descriptor_, line.data(), line.size()) < 0) ++num_dropped_;
  }
  void flush_() override {}

 private:
  int descriptor_;
  std::atomic<int> wait_ms_{100};
  std::atomic<std::uint64_t> num_dropped_{0};
};

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      break;
  }
  return spdlog::level::off;
}

// Returns the first 300 bytes as valid UTF-8. Control characters that JSON does not escape become '?', because a terminal may act on them.
std::string printable(std::string_view bytes) {
  constexpr std::size_t kMaxBytes = 300;
  const std::string text = repair_utf8(bytes.substr(0, kMaxBytes));
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c1 = byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    out += byte == 0x7F || is_c1 ? '?' : text[i];
    i += is_c1 ? 1 : 0;
  }
  return out;
}

bool is_plain(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || std::string_view("-._/:+@%~").contains(c);
  };
  return !text.empty() && std::ranges::all_of(text, plain);
}

void append_value(std::string& out, const LogField& field, LogFormat format) {
  if (const auto* text = std::get_if<std::string_view>(&field.value))
    if (format == LogFormat::text && is_plain(*text))
      out += *text;
    else
      append_json_string(out, printable(*text));
  else if (const auto* number = std::get_if<std::uint64_t>(&field.value))
    append_format(out, "{}", *number);
  else
    append_format(out, "{:.3f}", std::get<double>(field.value));
}

void append_field(std::string& out, const LogField& field, LogFormat format) {
  append_format(out, fmt::runtime(format == LogFormat::json ? R"(,"{}":)" : " {}="), field.name);
  append_value(out, field, format);
}

std::string line_of(std::string_view event, std::span<const LogField> fields, LogFormat format) {
  std::string out(format == LogFormat::json ? R"("event":)" + json_string(event) : std::string(event));
  for (const LogField& field : fields) append_field(out, field, format);
  return out;
}

void block_sigpipe() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

struct Logger::Impl {
  explicit Impl(const LogOptions& options)
      : sink(std::make_shared<DescriptorSink>(options.descriptor)),
        thread(std::make_shared<spdlog::details::thread_pool>(options.queue_lines, 1, &block_sigpipe)),
        logger(std::make_shared<spdlog::async_logger>("quire", sink, thread, spdlog::async_overflow_policy::overrun_oldest)),
        process(options.process) {
    logger->set_level(spdlog_level(options.level));
    logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(options.format == LogFormat::json ? kJsonPattern : kTextPattern,
                                                                      spdlog::pattern_time_type::utc));
  }
  // Ends the thread, which first writes the queued lines and releases its reference to the logger.
  ~Impl() {
    sink->hurry();
    thread.reset();
  }

  std::shared_ptr<DescriptorSink> sink;
  std::shared_ptr<spdlog::details::thread_pool> thread;
  std::shared_ptr<spdlog::async_logger> logger;
  const std::string process;
};

Logger::Logger(const LogOptions& options)
    : level_(options.level), format_(options.format), impl_(options.level == LogLevel::off ? nullptr : std::make_unique<Impl>(options)) {}

Logger::~Logger() = default;

void Logger::write_fields(LogLevel level, std::string_view event, std::span<const LogField> fields) {
  if (impl_ == nullptr || !is_on(level)) return;
  std::string line = line_of(event, fields, format_);
  if (!impl_->process.empty()) append_field(line, {"process", impl_->process}, format_);
  impl_->logger->log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
}

std::uint64_t Logger::num_dropped() const {
  return impl_ == nullptr ? 0 : impl_->thread->overrun_counter() + impl_->sink->num_dropped();
}

}  // namespace quire
