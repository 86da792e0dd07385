// quire doctor: reports what this machine and this build offer to a server, and how to remove limits. Reads the system and changes nothing.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/json_writer.h"
#include "base/usable_cores.h"
#include "base/usable_memory.h"
#include "cli/command.h"
#include "cli/doctor_checks.h"
#include "quire/base/version.h"
#include "quire/engine.h"
#include "quire/server.h"
#include "server/http/descriptors.h"

namespace quire {
namespace {

struct DoctorFlags {
  ServerOptions server;
  bool as_json = false;
};

// Returns the name of the first processor in /proc/cpuinfo, or the kind of machine if the file has no names (ARM64).
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
#ifdef __aarch64__
  return "ARM64";
#else
  return "x86-64";
#endif
}

// Returns the selected word of "always [madvise] never"; empty if the file cannot be read.
std::string huge_page_mode() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  for (std::string word; file >> word;)
    if (word.starts_with('[') && word.ends_with(']')) return word.substr(1, word.size() - 2);
  return {};
}

MachineFacts machine_facts(const ServerOptions& server) {
  const HostFeatures features = host_features();
  const auto port = BoundPort::bind(server);
  MachineFacts facts{
      .processor = processor_name(),
      .isa = features.isa,
      .num_cores = static_cast<std::uint32_t>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L)),
      .num_usable_cores = usable_cores(),
      .memory_bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)),
      .memory_limit_bytes = total_memory_bytes(),
      .available_memory_bytes = usable_memory_bytes(),
      .huge_pages = huge_page_mode(),
      .has_io_uring = features.has_io_uring,
      .max_open_files = raise_descriptor_limit(),
      .num_wanted_connections = server.max_connections,
      .num_possible_connections = fit_connections(server.max_connections),
      .port = server.port,
      .port_problem = port ? "" : port.error().message};
  return facts;
}

std::string json_of_checks(const std::vector<MachineCheck>& checks) {
  return json_object([&](JsonWriter& json) {
    json.field("version", kVersion).begin_array("checks");
    for (const MachineCheck& check : checks)
      json.begin_object().field("name", check.name).field("result", check.result).field("remedy", unless_empty(check.remedy)).end_object();
    json.end_array();
  });
}

void print_checks(const std::vector<MachineCheck>& checks) {
  for (const MachineCheck& check : checks) {
    fmt::print("{} {:<11} {}\n", check.remedy.empty() ? ' ' : '!', check.name, check.result);
    if (!check.remedy.empty()) fmt::print("  {:<11} To change this: {}\n", "", check.remedy);
  }
}

}  // namespace

Command add_doctor_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("doctor", "Show what this machine and this build offer to a server, and how to remove limits");
  auto flags = std::make_shared<DoctorFlags>();
  command->add_option("--port", flags->server.port, "Port that must be free")->capture_default_str();
  command->add_flag("--json", flags->as_json, "Print JSON: a list of checks, with a remedy for each limit");
  command->footer("A line with '!' is a limit, and the next line is its remedy. The exit status is 0 with or without limits.");
  return {command, [flags]() -> Result<int> {
            const std::vector<MachineCheck> checks = check_machine(machine_facts(flags->server), build_options());
            if (flags->as_json)
              fmt::print("{}\n", json_of_checks(checks));
            else
              print_checks(checks);
            return 0;
          }};
}

}  // namespace quire
