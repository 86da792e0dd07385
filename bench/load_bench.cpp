// Measures server and scheduler with many streams and a worker that computes nothing: real sockets over loopback, steps of a fixed length,
// and a client in a separate process. While one step runs, the client requests all streams. The benchmark then counts the steps until all
// streams are admitted, and measures the gaps between their events, and memory and CPU time per stream.
//
//   load_bench [STREAMS [STEP_MS [STEPS]]]     10000 streams, 1000 ms, 20 steps
//   load_bench --port PORT [STREAMS]           time of a running server to answer each stream, with 200 or a refusal
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/resolve_options.h"
#include "quire/server.h"
#include "runtime/worker/simulated_worker.h"
#include "server/http/descriptors.h"
#include "text/vocabulary.h"
#include "value.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kVocab = 257, kLetters = 26;
constexpr TokenId kEndOfText = 256;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The results of the client process, sent to the server process at the end.
struct Seen {
  std::uint64_t num_ok = 0, num_refused = 0, num_events = 0;
  double gap_p50_s = 0.0, gap_p99_s = 0.0, gap_max_s = 0.0;
  double head_max_s = 0.0;  // longest time from a request to the header of its response
};

template <class T>
void tell(int pipe, const T& what) {
  if (::write(pipe, &what, sizeof what) != sizeof what) std::_Exit(1);
}

template <class T>
T hear(int pipe) {
  T what{};
  std::size_t done = 0;
  while (done < sizeof what) {
    const ssize_t got = ::read(pipe, reinterpret_cast<char*>(&what) + done, sizeof what - done);
    if (got <= 0) {
      fmt::print(stderr, "the client ended early\n");
      std::exit(1);
    }
    done += static_cast<std::size_t>(got);
  }
  return what;
}

class Client {
 public:
  Client(std::uint16_t port, std::uint32_t num_streams) : port_(port), streams_(num_streams), epoll_(::epoll_create1(0)) {}

  // Requests all streams, and returns when the server has sent a response header for each.
  void ask_for_all(std::uint32_t num_tokens) {
    const std::string body = fmt::format(R"({{"prompt":"hello, bench","stream":true,"ignore_eos":true,"max_tokens":{}}})", num_tokens);
    const std::string request =
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                    body.size(), body);
    constexpr std::size_t kUnanswered = 256;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      open(i);
      streams_[i].asked_s = seconds_since(begin_);
      if (::send(streams_[i].socket, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) std::_Exit(1);
      while (i + 1 - (seen_.num_ok + seen_.num_refused) > kUnanswered) read_some(100);
    }
    while (seen_.num_ok + seen_.num_refused < streams_.size()) read_some(100);
  }
  void read_for(double seconds) {
    for (const Clock::time_point begin = Clock::now(); seconds_since(begin) < seconds;) read_some(20);
  }
  Seen seen() {
    std::ranges::sort(gaps_s_);
    const auto at = [&](double share) {
      return gaps_s_.empty() ? 0.0
                             : static_cast<double>(gaps_s_[static_cast<std::size_t>(share * static_cast<double>(gaps_s_.size() - 1))]);
    };
    seen_.gap_p50_s = at(0.5);
    seen_.gap_p99_s = at(0.99);
    seen_.gap_max_s = at(1.0);
    return seen_;
  }

 private:
  struct Stream {
    int socket = -1;
    bool has_head = false;
    double asked_s = 0.0, last_event_s = -1.0;
  };

  void open(std::size_t i) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (socket < 0 || ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      fmt::print(stderr, "stream {} cannot connect: {}\n", i, std::strerror(errno));
      std::_Exit(1);
    }
    ::fcntl(socket, F_SETFL, O_NONBLOCK);
    epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event);
    streams_[i].socket = socket;
  }

  void read_some(int timeout_ms) {
    epoll_event events[256];
    const int count = ::epoll_wait(epoll_, events, std::size(events), timeout_ms);
    for (int i = 0; i < count; ++i) read(streams_[events[i].data.u64]);
  }

  void read(Stream& stream) {
    char bytes[4096];
    const ssize_t got = ::recv(stream.socket, bytes, sizeof bytes, 0);
    if (got < 0) return;
    if (got == 0) {
      ::epoll_ctl(epoll_, EPOLL_CTL_DEL, stream.socket, nullptr);
      return;
    }
    const std::string_view text(bytes, static_cast<std::size_t>(got));
    if (!std::exchange(stream.has_head, true)) {
      const bool is_ok = text.starts_with("HTTP/1.1 200");
      ++(is_ok ? seen_.num_ok : seen_.num_refused);
      seen_.head_max_s = std::max(seen_.head_max_s, seconds_since(begin_) - stream.asked_s);
      if (!is_ok && seen_.num_refused == 1) fmt::print(stderr, "the first other answer: {}\n", text);
    }
    for (std::size_t at = text.find("data: "); at != std::string_view::npos; at = text.find("data: ", at + 1)) {
      const double now_s = seconds_since(begin_);
      ++seen_.num_events;
      if (stream.last_event_s >= 0.0) gaps_s_.push_back(static_cast<float>(now_s - stream.last_event_s));
      stream.last_event_s = now_s;
    }
  }

  const std::uint16_t port_;
  std::vector<Stream> streams_;
  const int epoll_;
  const Clock::time_point begin_ = Clock::now();
  std::vector<float> gaps_s_;
  Seen seen_;
};

// Runs the child process: receives the port, requests all streams, reports this, reads the streams, and sends its results.
[[noreturn]] void run_client(int from_server, int to_server, std::uint32_t num_streams, std::uint32_t num_tokens) {
  raise_descriptor_limit();
  Client client(hear<std::uint16_t>(from_server), num_streams);
  client.ask_for_all(num_tokens);
  tell(to_server, true);
  client.read_for(hear<double>(from_server));
  tell(to_server, client.seen());
  (void)hear<bool>(from_server);
  std::_Exit(0);
}

// Returns a model whose tokens are letters, so that every token is complete text.
ModelInfo letter_model() {
  ModelInfo model;
  model.name = "letters";
  model.num_layers = model.num_kv_heads = model.head_dim = 1;
  model.vocab_size = kVocab;
  model.context_length = 512;
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::bpe_bytes;
  spec.pre = "gpt-2";
  for (unsigned byte = 0; byte < 256; ++byte) spec.tokens.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  spec.types.assign(256, TokenizerSpec::TokenType::normal);
  spec.tokens.emplace_back("<|end|>");
  spec.types.push_back(TokenizerSpec::TokenType::control);
  spec.eos = kEndOfText;
  spec.eog = {kEndOfText};
  model.tokenizer = std::make_shared<const TokenizerSpec>(std::move(spec));
  return model;
}

// Delays each step until `is_open` is set, and at least by `step`. Counts admissions.
struct Pace {
  std::atomic<bool> is_open = true;
  std::atomic<std::uint32_t> num_admitted = 0, num_steps = 0;
  std::uint32_t step_of_last = 0;  // step in which the last request was admitted
  std::chrono::milliseconds step{0};

  void before_step(const StepPlan& plan) {
    ++num_steps;
    if (!plan.admitted.empty()) {
      num_admitted += static_cast<std::uint32_t>(plan.admitted.size());
      step_of_last = num_steps;
    }
    const Clock::time_point begin = Clock::now();
    while (!is_open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_until(begin + step);
  }
};

std::unique_ptr<Engine> make_paced_engine(std::uint32_t num_streams, const std::shared_ptr<Pace>& pace) {
  const ModelInfo model = letter_model();
  EngineOptions options;
  options.scheduler.max_num_seqs = num_streams + 1;
  options.scheduler.max_num_waiting = num_streams + 1;
  options.scheduler.max_num_batched_tokens = 1U << 20U;
  options.cache.num_blocks = (num_streams + 1) * model.context_length / options.cache.block_size + 1;
  const ResolvedEngine resolved = value(resolve_options(options, model, {1, 0}));
  SimulatedWorkerOptions worker{
      .limits = resolved.limits,
      .block_size = resolved.options.cache.block_size,
      .num_blocks = resolved.options.cache.num_blocks,
      .vocab_size = kVocab,
      .before_step = [pace](const StepPlan& plan) { pace->before_step(plan); },
      .next_token = [](std::span<const TokenId> history) { return static_cast<TokenId>('a' + history.size() % kLetters); },
      .num_threads = 2};
  return value(make_engine(resolved, {std::make_unique<SimulatedWorker>(std::move(worker))}));
}

std::uint64_t resident_bytes() {
  std::uint64_t pages = 0;
  std::ifstream statm("/proc/self/statm");
  statm >> pages >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

double processor_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Sink of a request that runs before all others, so that a step is in progress when they arrive.
class FirstRequest final : public OutputSink {
 public:
  void deliver(std::vector<RequestOutput> /*outputs*/) override {}
};

void run(std::uint32_t num_streams, std::uint32_t step_ms, std::uint32_t num_steps, int to_client, int from_client) {
  raise_descriptor_limit();
  const auto pace = std::make_shared<Pace>();
  const auto engine = make_paced_engine(num_streams, pace);
  Logger logger(LogOptions{.level = LogLevel::off});
  ServerOptions options;
  options.port = 0;
  options.max_connections = num_streams + num_streams / 8 + 100;  // the server reserves a sixteenth, which requests that wait cannot use
  const auto server = value(Server::create(*engine, options, logger));
  if (server->max_connections() < num_streams) {
    fmt::print(stderr, "the limit of open files allows {} connections only\n", server->max_connections());
    std::exit(1);
  }
  std::thread serving([&] { server->run(); });
  FirstRequest first;
  EngineRequest request;
  request.prompt = {'a', 'b'};
  request.sampling.max_tokens = 500;
  request.sampling.ignore_eos = true;
  pace->is_open = false;
  (void)value(engine->submit(std::move(request), first));
  while (pace->num_steps == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));

  const std::uint64_t bytes_before = resident_bytes();
  tell(to_client, server->port());
  (void)hear<bool>(from_client);
  const std::uint32_t first_step = pace->num_steps;
  const double begin_s = processor_s();
  pace->step = std::chrono::milliseconds(step_ms);
  pace->is_open = true;
  tell(to_client, step_ms / 1000.0 * (num_steps + 2));
  while (pace->num_steps < first_step + num_steps && pace->num_admitted <= num_streams)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  while (pace->num_steps < first_step + num_steps) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::uint64_t bytes = resident_bytes() - bytes_before;
  const Seen seen = hear<Seen>(from_client);
  const double busy_s = processor_s() - begin_s;
  const double step_s = step_ms / 1000.0;
  fmt::print("{} streams, steps of {} ms: {} got 200, {} another status\n", num_streams, step_ms, seen.num_ok, seen.num_refused);
  fmt::print("all admitted after {} steps ({} of {})\n", pace->step_of_last - first_step, pace->num_admitted.load() - 1, num_streams);
  fmt::print("gap of events p50 {:.3f} s, p99 {:.3f} s = {:.2f} steps, max {:.3f} s\n", seen.gap_p50_s, seen.gap_p99_s,
             seen.gap_p99_s / step_s, seen.gap_max_s);
  fmt::print("memory {:.1f} KB a stream; processors {:.1f} us an event ({} events)\n", static_cast<double>(bytes) / 1000.0 / num_streams,
             busy_s * 1e6 / static_cast<double>(std::max<std::uint64_t>(seen.num_events, 1)), seen.num_events);
  tell(to_client, true);
  server->request_stop();
  server->request_stop();
  serving.join();
  engine->stop(0.0);
}

std::uint32_t argument(int argc, char** argv, int i, std::uint32_t otherwise) {
  return argc > i ? static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[1]) == "--port") {
    raise_descriptor_limit();
    Client client(static_cast<std::uint16_t>(argument(argc, argv, 2, 8000)), argument(argc, argv, 3, 10'000));
    client.ask_for_all(16);
    const Seen seen = client.seen();
    fmt::print("{} got 200, {} another status, the slowest answer began after {:.3f} s\n", seen.num_ok, seen.num_refused, seen.head_max_s);
    return 0;
  }
  const std::uint32_t num_streams = argument(argc, argv, 1, 10'000), step_ms = argument(argc, argv, 2, 1000),
                      num_steps = argument(argc, argv, 3, 20);
  int to_client[2], to_server[2];
  if (::pipe(to_client) != 0 || ::pipe(to_server) != 0) return 1;
  const pid_t client = ::fork();  // called before other threads are created
  if (client < 0) return 1;
  if (client == 0) run_client(to_client[0], to_server[1], num_streams, 4 * num_steps + 100);
  run(num_streams, step_ms, num_steps, to_client[1], to_server[0]);
  ::waitpid(client, nullptr, 0);
  return 0;
}
