#include "cli/doctor_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/format_bytes.h"
#include "quire/base/option.h"

namespace quire {
namespace {

// Memory that a small model and the process need in addition to the KV cache.
constexpr std::uint64_t kSmallModelBytes = std::uint64_t{512} << 20U;

MachineCheck check_processor(const MachineFacts& facts) {
  const auto words = words_of(facts.isa);
  const auto word = std::ranges::find(words, facts.isa, [](const auto& known) { return known.value; });
  const bool is_plain = facts.isa == KernelIsa::reference;
  return {.name = "processor",
          .result = fmt::format("{}; kernels: {}", facts.processor, word->text),
          .remedy = is_plain ? "use a processor with AVX2 (x86-64) or dot-product instructions (ARM64): plain kernels are slow" : ""};
}

MachineCheck check_cores(const MachineFacts& facts) {
  if (facts.num_usable_cores >= facts.num_cores) return {.name = "cores", .result = fmt::format("{}", facts.num_cores)};
  return {.name = "cores",
          .result = fmt::format("{} of {} (CPU affinity or limit of a control group)", facts.num_usable_cores, facts.num_cores),
          .remedy = "raise the CPU limit of the container or the service (docker --cpus, Kubernetes limits.cpu, CPUQuota=)"};
}

MachineCheck check_memory(const MachineFacts& facts) {
  const std::uint64_t cache = CacheOptions{}.kv_cache_bytes;
  std::string result =
      fmt::format("{} available of {}", format_bytes(facts.available_memory_bytes), format_bytes(facts.memory_limit_bytes));
  if (facts.memory_limit_bytes < facts.memory_bytes)
    result += fmt::format(" (limit of a control group; the machine has {})", format_bytes(facts.memory_bytes));
  if (facts.available_memory_bytes < cache + kSmallModelBytes)
    return {.name = "memory",
            .result = fmt::format("{}; the default KV cache of {} and a small model do not fit", result, format_bytes(cache)),
            .remedy = "stop other programs, raise the memory limit, or use a smaller --kv-cache-memory"};
  return {.name = "memory",
          .result = fmt::format("{}; {} for weights with the default KV cache of {}", result,
                                format_bytes(facts.available_memory_bytes - cache), format_bytes(cache))};
}

MachineCheck check_huge_pages(const MachineFacts& facts) {
  const std::string& mode = facts.huge_pages;
  return {.name = "huge pages",
          .result = mode.empty() ? "not known (no /sys/kernel/mm/transparent_hugepage)" : mode,
          .remedy = mode == "never" ? "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled" : ""};
}

MachineCheck check_io_uring(const MachineFacts& facts) {
  if (facts.has_io_uring) return {.name = "io_uring", .result = "available"};
  return {.name = "io_uring",
          .result = "not available; --kv-disk uses threads instead",
          .remedy =
              "use a build with liburing, and allow io_uring in the seccomp profile of the container and in "
              "/proc/sys/kernel/io_uring_disabled"};
}

MachineCheck check_open_files(const MachineFacts& facts) {
  const bool is_limited = facts.num_possible_connections < facts.num_wanted_connections;
  return {.name = "open files",
          .result = fmt::format("at most {}: {} connections{}", facts.max_open_files, facts.num_possible_connections,
                                is_limited ? fmt::format(" instead of {}", facts.num_wanted_connections) : ""),
          .remedy = is_limited ? "raise the hard limit of open files (ulimit -Hn, LimitNOFILE=)" : ""};
}

MachineCheck check_port(const MachineFacts& facts) {
  return {.name = "port",
          .result = facts.port_problem.empty() ? fmt::format("{} is free", facts.port) : facts.port_problem,
          .remedy = facts.port_problem.empty() ? "" : "stop the other server, or start quire serve with another --port"};
}

MachineCheck check_build(std::span<const BuildOption> options) {
  std::vector<std::string> missing, remedies;
  for (const BuildOption& option : options) {
    if (option.is_included) continue;
    missing.push_back(fmt::format("{} ({})", option.library, option.purpose));
    remedies.push_back(option.package.empty() ? fmt::format("run ./dev build for {}", option.library)
                                              : fmt::format("install {}", option.package));
  }
  if (missing.empty()) return {.name = "build", .result = "all optional libraries"};
  return {.name = "build",
          .result = fmt::format("without {}", fmt::join(missing, ", ")),
          .remedy = fmt::format("{}, and build quire again", fmt::join(remedies, ", "))};
}

}  // namespace

std::vector<MachineCheck> check_machine(const MachineFacts& facts, std::span<const BuildOption> options) {
  return {check_processor(facts), check_cores(facts),      check_memory(facts), check_huge_pages(facts),
          check_io_uring(facts),  check_open_files(facts), check_port(facts),   check_build(options)};
}

}  // namespace quire
