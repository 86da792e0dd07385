// Random streams of events for the core, from a seed, in a build without a fuzzer: core_stress [--events N] [--seed S]. Each stream has
// its own configuration; prints how many events ran.
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "fuzz/core_events.h"

namespace {

constexpr std::uint64_t kEventsPerStream = 2000;

// What the streams met, so that a run which met nothing is seen.
struct Met {
  std::uint64_t events = 0, streams = 0, steps = 0, tokens = 0, preemptions = 0, evictions = 0, hits = 0;
};

void run_stream(std::uint64_t seed, std::uint64_t num_events, Met& met) {
  quire::test::SeedSource in(seed, num_events);
  quire::test::CoreEvents<quire::test::SeedSource> events(in);
  ++met.streams;
  if (!events.valid()) {
    return;
  }
  for (; !in.empty(); in.count()) {
    events.one_event();
  }
  events.drain();
  const quire::CoreCounters counters = events.counters();
  met.events += num_events;
  met.steps += counters.num_steps;
  met.tokens += counters.num_scheduled_tokens;
  met.preemptions += counters.num_preemptions;
  met.evictions += counters.num_evicted_blocks;
  met.hits += counters.prefix_hit_tokens + counters.preempted_prefix_hit_tokens;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t num_events = 1'000'000;
  std::uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    (std::string_view(argv[i]) == "--events" ? num_events : seed) = std::strtoull(argv[i + 1], nullptr, 10);
  }
  Met met;
  while (met.events < num_events) {
    const std::uint64_t stream = (seed << 32U) + met.streams;
    if (std::getenv("CORE_STRESS_TRACE") != nullptr) {
      fmt::print("stream {}\n", stream);
      std::fflush(stdout);
    }
    run_stream(stream, std::min(kEventsPerStream, num_events - met.events), met);
  }
  fmt::print(
      "{} events in {} streams, every invariant checked after each: {} steps, {} tokens, {} preemptions, {} evictions, {} hit tokens\n",
      met.events, met.streams, met.steps, met.tokens, met.preemptions, met.evictions, met.hits);
  return 0;
}
