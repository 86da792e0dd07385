// Runs random streams of events for the core from a seed, in a build without a fuzzer: core_stress [--events N] [--seed S] [--first K].
// Each stream has a separate configuration and separate numbers. K is the first stream, so `--first K --events 1` runs stream K alone,
// whole. Prints the stream at which an invariant broke, and how many events ran.
#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

#include "fuzz/core_events.h"

namespace {

constexpr std::uint64_t kEventsPerStream = 2000;

// Totals over all streams. They show a run that covers nothing.
struct Met {
  std::uint64_t events = 0, streams = 0, steps = 0, tokens = 0, preemptions = 0, evictions = 0, hits = 0, forks = 0, copies = 0;
};

void run_stream(std::uint64_t seed, std::uint64_t num_events, Met& met) {
  quire::test::SeedSource in(seed, num_events);
  quire::test::CoreEvents<quire::test::SeedSource> events(in);
  ++met.streams;
  if (!events.valid()) return;
  for (; !in.empty(); in.count()) events.one_event();
  events.drain();
  const quire::CoreCounters counters = events.counters();
  met.events += num_events;
  met.steps += counters.num_steps;
  met.tokens += counters.num_scheduled_tokens;
  met.preemptions += counters.num_preemptions;
  met.evictions += counters.num_evicted_blocks;
  met.forks += counters.num_forks;
  met.copies += counters.num_copied_blocks;
  met.hits += counters.prefix_hit_tokens + counters.preempted_prefix_hit_tokens;
}

struct Running {
  std::uint64_t seed = 0, stream = 0;
};

Running running;  // for the message of an invariant that breaks, which ends the program

extern "C" void report_stream(int /*signal*/) {
  fmt::print(stderr, "in this stream: core_stress --seed {} --first {} --events 1\n", running.seed, running.stream);
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t num_events = 1'000'000;
  std::uint64_t first = 0;
  running.seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    (name == "--events" ? num_events : name == "--first" ? first : running.seed) = std::strtoull(argv[i + 1], nullptr, 10);
  }
  std::signal(SIGABRT, report_stream);
  Met met;
  while (met.events < num_events) {
    running.stream = first + met.streams;
    run_stream((running.seed << 32U) + running.stream, kEventsPerStream, met);
  }
  fmt::print(
      "{} events in {} streams, every invariant checked after each: {} steps, {} tokens, {} preemptions, {} evictions, {} hit tokens, {} "
      "forks, {} copies\n",
      met.events, met.streams, met.steps, met.tokens, met.preemptions, met.evictions, met.hits, met.forks, met.copies);
  return 0;
}
