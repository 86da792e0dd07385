#pragma once
// A process of `quire serve` that this process has started, and its standard output.
#include <sys/types.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Used on the server's thread only. The process has its own process group, so that signals of a terminal reach only the supervisor.
class ChildProcess {
 public:
  struct Command {
    std::string program;
    std::vector<std::string> arguments;    // without the program
    std::vector<std::string> environment;  // "NAME=VALUE", in addition to this process's environment
  };

  // Starts the program. `on_line` is called for each line of its standard output. Errors: `io`.
  static Result<std::unique_ptr<ChildProcess>> start(boost::asio::io_context& io, const Command& command,
                                                     std::function<void(std::string_view line)> on_line);
  // Kills the process if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void send_signal(int signal) const;
  // Returns how the process ended ("exit status 2", "signal 9 (Killed)"), after all lines of its output were reported; nullopt: it runs.
  [[nodiscard]] std::optional<std::string> take_end();

 private:
  ChildProcess(boost::asio::io_context& io, int output, std::function<void(std::string_view)> on_line);
  void read_more();
  // Reads what is in the pipe now.
  void read_rest();
  void add_output(std::string_view bytes);

  pid_t pid_ = -1;  // -1: not started, or ended
  boost::asio::posix::stream_descriptor output_;
  std::function<void(std::string_view)> on_line_;
  std::array<char, 4096> buffer_{};
  std::string line_;                                            // the line whose end has not arrived yet
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // destroyed with this object
};

}  // namespace quire
