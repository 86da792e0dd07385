// quire demo: runs a server with little memory and synthetic clients, so that the dashboard shows activity immediately. Runs on the main
// thread, like `quire serve`; the clients have separate threads. Ends with a signal, or after --seconds.
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "cli/command.h"
#include "cli/demo_mix.h"
#include "cli/find_model.h"
#include "cli/flags/engine_flags.h"
#include "cli/start_engine.h"
#include "quire/base/logger.h"
#include "quire/base/structured_output.h"
#include "quire/engine.h"
#include "quire/server.h"
#include "quire/server_options.h"

namespace quire {
namespace {

constexpr double kReport_s = 10.0;

struct DemoFlags {
  EngineOptions engine;
  ServerOptions server;
  KvDramOptions kv_dram;
  DemoMixOptions mix;
  std::uint32_t seconds = 0;
};

// Sets defaults with so small a cache that requests wait, blocks are evicted, and some blocks are loaded from the tier again. With the
// default model, the KV cache takes 230 MB.
void set_demo_defaults(DemoFlags& flags) {
  flags.server.handle_signals = true;
  flags.engine.cache.num_blocks = 640;
  flags.engine.scheduler.max_num_seqs = 8;
  flags.engine.scheduler.max_model_len = 2048;
  flags.engine.scheduler.max_num_batched_tokens = 256;
  flags.kv_dram.bytes = std::uint64_t{512} << 20U;
  flags.kv_dram.policy = KvTierPolicy::exact;
}

// Prints the current counts regularly, and stops the server when the time is over.
class DemoClock {
 public:
  DemoClock(Server& server, Engine& engine, const DemoMix& mix, std::uint32_t seconds)
      : thread_([this, &server, &engine, &mix, seconds] { run(server, engine, mix, seconds); }) {}
  ~DemoClock() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  DemoClock(const DemoClock&) = delete;
  DemoClock& operator=(const DemoClock&) = delete;

 private:
  void run(Server& server, Engine& engine, const DemoMix& mix, std::uint32_t seconds) {
    const auto begin = std::chrono::steady_clock::now();
    const auto end = begin + std::chrono::seconds(seconds);
    for (std::unique_lock lock(mutex_); !is_over_;) {
      auto next = std::chrono::steady_clock::now() + std::chrono::duration<double>(kReport_s);
      if (seconds > 0) next = std::min<decltype(next)>(next, end);
      wake_.wait_until(lock, next, [this] { return is_over_; });
      if (is_over_) return;
      tell(engine, mix, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      if (seconds > 0 && std::chrono::steady_clock::now() >= end) return server.request_stop();
    }
  }

  static void tell(const Engine& engine, const DemoMix& mix, double seconds) {
    const EngineStats stats = engine.stats();
    const DemoCounts counts = mix.counts();
    const std::uint64_t loaded = stats.kv_tiers.empty() ? 0 : stats.kv_tiers.front().tokens_loaded;
    fmt::print("{:5.0f} s  {} answers ({} disconnected, {} rejected)   running {}, waiting {}   ", seconds, counts.num_answers,
               counts.num_left, counts.num_refused, stats.num_running, stats.num_waiting);
    fmt::print("cached {} + {} of {} prompt tokens   evicted {} blocks, preempted {}\n", stats.prefix_cache_hits, loaded,
               stats.prefix_cache_queries, stats.num_evicted_blocks, stats.num_preemptions);
    std::fflush(stdout);
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_over_ = false;
  std::thread thread_;
};

Result<int> demo(const DemoFlags& flags) {
  auto port = BoundPort::bind(flags.server);
  if (!port.has_value()) return std::unexpected(port.error());
  const auto logger = std::make_shared<Logger>(LogOptions{.level = LogLevel::warn});
  auto engine = start_engine(EngineBuilder(flags.engine).logger(logger).kv_dram(flags.kv_dram));
  if (!engine.has_value()) return std::unexpected(engine.error());
  auto server = Server::create(**engine, flags.server, *logger, *std::move(port));
  if (!server.has_value()) return std::unexpected(server.error());
  if (const std::string problem = (*server)->chat_problem(); !problem.empty())
    return fail(ErrorCode::unsupported, "MODEL", fmt::format("chat is not available for this model: {}", problem),
                "use a model with a chat template");
  const std::string url = fmt::format("http://{}:{}", flags.server.host, (*server)->port());
  fmt::print("quire demo: {} clients talk to {} at {}\n\n  Watch them:  {}/dashboard\n\n", flags.mix.num_clients, (*server)->model_name(),
             url, url);
  fmt::print("Click a lane or a block to see why that request waited. {} ends it.\n",
             flags.seconds == 0 ? "Ctrl-C" : fmt::format("Ctrl-C, or {} s,", flags.seconds));
  std::fflush(stdout);
  DemoMixOptions mix_options = flags.mix;
  mix_options.port = (*server)->port();
  mix_options.supports_schemas = has_structured_output();
  {
    DemoMix mix(mix_options);
    {
      const DemoClock clock(**server, **engine, mix, flags.seconds);
      (*server)->run();
    }
    mix.stop();
    // Destroying the server closes the connections.
    server->reset();
    const DemoCounts counts = mix.counts();
    fmt::print("Stopped after {} answers.\n", counts.num_answers);
  }
  (*engine)->stop(0.0);
  return 0;
}

}  // namespace

Command add_demo_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("demo", "Run a server with simulated clients, to watch on its dashboard");
  auto flags = std::make_shared<DemoFlags>();
  set_demo_defaults(*flags);
  add_engine_flags(*command, flags->engine);
  command->add_option("--port", flags->server.port, "Port to listen on; 0: any free port")->capture_default_str();
  command->add_option("--kv-dram", flags->kv_dram.bytes, "Size of a host memory tier for KV blocks; 0: no tier")
      ->transform(bytes_flag())
      ->default_str("512MiB");
  command->add_option("--clients", flags->mix.num_clients, "Number of simulated clients, of five kinds")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  command->add_option("--pace", flags->mix.pace, "Factor for the pauses of the clients")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  command->add_option("--demo-seed", flags->mix.seed, "Random seed of the texts that the clients send")->capture_default_str();
  command->add_option("--seconds", flags->seconds, "Duration in seconds; 0: until the process is stopped")->capture_default_str();
  command->footer("Examples:\n  ./dev demo\n  quire demo model.gguf --clients 40 --num-blocks 2000");
  return {command, [flags]() -> Result<int> {
            if (auto found = find_models(flags->engine); !found) return std::unexpected(std::move(found.error()));
            return demo(*flags);
          }};
}

}  // namespace quire
