// Starts processes with posix_spawn, which is safe in a program with threads. The child inherits only the standard descriptors: a copy of a
// client's socket would keep the connection open.
#include "server/models/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

extern char** environ;

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kMaxLineBytes = 4096;

// The settings of posix_spawn. The destructor frees them.
class SpawnSettings {
 public:
  explicit SpawnSettings(int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  [[nodiscard]] const posix_spawn_file_actions_t* actions() const { return &actions_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

// Returns the array of C strings that ends with a null pointer. `texts` must outlive it.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Returns this process's environment with the given variables.
std::vector<std::string> environment_with(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view name = std::string_view(*variable).substr(0, std::string_view(*variable).find('=') + 1);
    bool is_replaced = false;
    for (const std::string& one : added) is_replaced |= one.starts_with(name);
    if (!is_replaced) all.emplace_back(*variable);
  }
  return all;
}

std::unexpected<Error> cannot_start(const std::string& program, int error) {
  return fail(ErrorCode::io, "", fmt::format("cannot start {}: {}", program, std::strerror(error)), "check the limits of the system");
}

}  // namespace

ChildProcess::ChildProcess(asio::io_context& io, int output, std::function<void(std::string_view)> on_line)
    : output_(io, output), on_line_(std::move(on_line)) {
  output_.non_blocking(true);
}

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(asio::io_context& io, const Command& command,
                                                          std::function<void(std::string_view line)> on_line) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return cannot_start(command.program, errno);
  std::unique_ptr<ChildProcess> child(new ChildProcess(io, ends[0], std::move(on_line)));
  std::vector<std::string> arguments = command.arguments, environment = environment_with(command.environment);
  arguments.insert(arguments.begin(), command.program);
  pid_t pid = -1;
  const SpawnSettings settings(ends[1]);
  const int error = ::posix_spawn(&pid, command.program.c_str(), settings.actions(), settings.attributes(), pointers_to(arguments).data(),
                                  pointers_to(environment).data());
  ::close(ends[1]);
  if (error != 0) return cannot_start(command.program, error);
  child->pid_ = pid;
  child->read_more();
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::send_signal(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

// A read may end after this object is destroyed.
void ChildProcess::read_more() {
  output_.async_read_some(asio::buffer(buffer_), [this, alive = std::weak_ptr(alive_)](boost::system::error_code code, std::size_t read) {
    if (code || alive.expired()) return;
    add_output({buffer_.data(), read});
    read_more();
  });
}

void ChildProcess::read_rest() {
  std::array<char, 4096> bytes;
  for (;;) {
    const ssize_t read = ::read(output_.native_handle(), bytes.data(), bytes.size());
    if (read == 0 || (read < 0 && errno != EINTR)) return;
    if (read > 0) add_output({bytes.data(), static_cast<std::size_t>(read)});
  }
}

void ChildProcess::add_output(std::string_view bytes) {
  for (const char c : bytes) {
    if (c != '\n' && line_.size() < kMaxLineBytes) line_ += c;
    if (c == '\n') on_line_(std::exchange(line_, {}));
  }
}

std::optional<std::string> ChildProcess::take_end() {
  int status = 0;
  if (pid_ <= 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = -1;
  read_rest();
  if (WIFSIGNALED(status)) return fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

}  // namespace quire
