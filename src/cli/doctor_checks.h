#pragma once
// The report of `quire doctor`: one result for each resource of the machine that a server needs.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/build_options.h"
#include "quire/base/options.h"

namespace quire {

// The resources of a machine, as this process sees them. Sizes are in bytes.
struct MachineFacts {
  std::string processor;  // its name
  KernelIsa isa = KernelIsa::reference;
  std::uint32_t num_cores = 0, num_usable_cores = 0;
  std::uint64_t memory_bytes = 0;            // of the machine
  std::uint64_t memory_limit_bytes = 0;      // the smaller of the machine's memory and the limits of control groups
  std::uint64_t available_memory_bytes = 0;  // not in use, within these limits
  std::string huge_pages;                    // mode of transparent huge pages: "always", "madvise" or "never"; empty: not known
  bool has_io_uring = false;
  std::uint64_t max_open_files = 0;
  std::uint32_t num_wanted_connections = 0, num_possible_connections = 0;
  std::uint16_t port = 0;
  std::string port_problem;  // empty: the port is free
};

struct MachineCheck {
  std::string_view name;  // "memory"
  std::string result;
  std::string remedy{};  // empty: the resource limits nothing
};

// Returns the results in the order in which they are shown.
std::vector<MachineCheck> check_machine(const MachineFacts& facts, std::span<const BuildOption> options);

}  // namespace quire
