// Tests which resources `quire doctor` reports as limits, and that each limit has a remedy.
#include "cli/doctor_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace quire {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

// A machine without limits.
MachineFacts large_machine() {
  return {.processor = "EPYC",
          .isa = KernelIsa::avx512_bf16,
          .num_cores = 8,
          .num_usable_cores = 8,
          .memory_bytes = 64 * kGiB,
          .memory_limit_bytes = 64 * kGiB,
          .available_memory_bytes = 60 * kGiB,
          .huge_pages = "madvise",
          .has_io_uring = true,
          .max_open_files = 1U << 20U,
          .num_wanted_connections = 1024,
          .num_possible_connections = 1024,
          .port = 8000,
          .port_problem = ""};
}

constexpr BuildOption kComplete[] = {{"llguidance", "structured output", "", true}, {"hiredis", "Redis", "libhiredis-dev", true}};
constexpr BuildOption kBare[] = {{"llguidance", "structured output", "", false}, {"hiredis", "Redis", "libhiredis-dev", false}};

// Returns the names of the checks that have a remedy.
std::vector<std::string> limits_of(const MachineFacts& facts, std::span<const BuildOption> options = kComplete) {
  std::vector<std::string> names;
  for (const MachineCheck& check : check_machine(facts, options))
    if (!check.remedy.empty()) names.emplace_back(check.name);
  return names;
}

MachineCheck check_of(const MachineFacts& facts, std::string_view name, std::span<const BuildOption> options = kComplete) {
  const auto checks = check_machine(facts, options);
  return *std::ranges::find(checks, name, &MachineCheck::name);
}

using Names = std::vector<std::string>;

TEST(DoctorChecks, ReportEachResource) {
  const MachineFacts facts = large_machine();
  EXPECT_EQ(limits_of(facts), Names{});
  EXPECT_EQ(check_of(facts, "processor").result, "EPYC; kernels: avx512_bf16");
  EXPECT_EQ(check_of(facts, "cores").result, "8");
  EXPECT_EQ(check_of(facts, "memory").result,
            "60.00 GiB available of 64.00 GiB; 59.00 GiB for weights with the default KV cache of 1.00 GiB");
  EXPECT_EQ(check_of(facts, "huge pages").result, "madvise");
  EXPECT_EQ(check_of(facts, "open files").result, "at most 1048576: 1024 connections");
  EXPECT_EQ(check_of(facts, "port").result, "8000 is free");
  EXPECT_EQ(check_of(facts, "build").result, "all optional libraries");
}

TEST(DoctorChecks, HaveARemedyForEachLimit) {
  MachineFacts facts = large_machine();
  facts.isa = KernelIsa::reference;
  EXPECT_EQ(limits_of(facts), Names{"processor"});
  facts = large_machine();
  facts.num_usable_cores = 2;
  EXPECT_EQ(limits_of(facts), Names{"cores"});
  facts = large_machine();
  facts.available_memory_bytes = kGiB + (kGiB >> 1U) - 1;
  EXPECT_EQ(limits_of(facts), Names{"memory"});
  ++facts.available_memory_bytes;
  EXPECT_EQ(limits_of(facts), Names{});
  facts.huge_pages = "never";
  EXPECT_EQ(limits_of(facts), Names{"huge pages"});
  facts = large_machine();
  facts.has_io_uring = false;
  EXPECT_EQ(limits_of(facts), Names{"io_uring"});
  facts = large_machine();
  facts.num_possible_connections = 900;
  EXPECT_EQ(limits_of(facts), Names{"open files"});
  facts = large_machine();
  facts.port_problem = "cannot listen";
  EXPECT_EQ(limits_of(facts), Names{"port"});
  EXPECT_EQ(limits_of(large_machine(), kBare), Names{"build"});
}

TEST(DoctorChecks, NameTheLimitOfAControlGroup) {
  MachineFacts facts = large_machine();
  facts.memory_limit_bytes = 4 * kGiB;
  facts.available_memory_bytes = 3 * kGiB;
  EXPECT_EQ(
      check_of(facts, "memory").result,
      "3.00 GiB available of 4.00 GiB (limit of a control group; the machine has 64.00 GiB); 2.00 GiB for weights with the default KV "
      "cache of 1.00 GiB");
}

TEST(DoctorChecks, ListMissingLibrariesWithTheirPackages) {
  const MachineCheck build = check_of(large_machine(), "build", kBare);
  EXPECT_EQ(build.result, "without llguidance (structured output), hiredis (Redis)");
  EXPECT_EQ(build.remedy, "run ./dev build for llguidance, install libhiredis-dev, and build quire again");
}

}  // namespace
}  // namespace quire
