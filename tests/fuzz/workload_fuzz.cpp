// Reads any bytes as a trace, compressed or not, and as a worker's file. The result is a workload that can be simulated, or an error.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "fuzz/subject.h"
#include "quire/simulation.h"

static quire::test::FuzzSubject subject("a simulated workload");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int file = memfd_create("workload", 0);
  QUIRE_CHECK(file >= 0 && write(file, data, size) == static_cast<ssize_t>(size), "memory for the bytes");
  const std::string path = fmt::format("/proc/self/fd/{}", file);
  quire::WorkloadOptions options;
  options.path = path;
  options.num_agents = 2;
  const auto workload = quire::read_workload(options);
  const auto steps = quire::fit_worker_to_steps(path);
  const auto worker = quire::read_worker_model(path);
  close(file);
  QUIRE_CHECK(steps || !steps.error().message.empty(), "an error has a message");
  QUIRE_CHECK(worker || !worker.error().message.empty(), "an error has a message");
  if (!workload) {
    QUIRE_CHECK(!workload.error().message.empty(), "an error has a message");
    return 0;
  }
  std::uint64_t num_tokens = 0;
  for (const quire::WorkloadRequest& request : workload->requests)
    num_tokens += std::uint64_t{request.prompt_tokens} + request.output_tokens;
  // Longer workloads take more time and cover nothing more.
  if (num_tokens > 20'000) return 0;
  quire::SimulationOptions simulation;
  simulation.num_blocks = 64;
  const auto result = quire::simulate(*workload, simulation);
  if (result) subject.reached();
  QUIRE_CHECK(!result || result->num_finished + result->num_refused + result->num_stuck == workload->requests.size(), "each has its end");
  return 0;
}
