// Random streams of events for the core, from a seed, in a build without a fuzzer: core_stress [--events N] [--seed S]. Each stream has
// its own configuration; prints how many events ran.
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "fuzz/core_events.h"

namespace {

constexpr std::uint64_t kEventsPerStream = 2000;

std::uint64_t run_stream(std::uint64_t seed, std::uint64_t num_events) {
  quire::test::SeedSource in(seed, num_events);
  quire::test::CoreEvents<quire::test::SeedSource> events(in);
  if (!events.valid()) {
    return 0;
  }
  for (; !in.empty(); in.count()) {
    events.one_event();
  }
  events.drain();
  return num_events;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t num_events = 1'000'000;
  std::uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    (std::string_view(argv[i]) == "--events" ? num_events : seed) = std::strtoull(argv[i + 1], nullptr, 10);
  }
  std::uint64_t num_done = 0;
  std::uint64_t num_streams = 0;
  for (; num_done < num_events; ++num_streams) {
    const std::uint64_t stream = (seed << 32U) + num_streams;
    if (std::getenv("CORE_STRESS_TRACE") != nullptr) {
      fmt::print("stream {}\n", stream);
      std::fflush(stdout);
    }
    num_done += run_stream(stream, std::min(kEventsPerStream, num_events - num_done));
  }
  fmt::print("{} events in {} streams, every invariant checked after each\n", num_done, num_streams);
  return 0;
}
