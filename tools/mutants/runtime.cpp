// The main program of the mutated test binary. It reads these environment variables:
//   QUIRE_MUTANT         the active mutant; none if unset
//   QUIRE_MUTANT_CPU_S   processor time after which the program is stopped, because a mutant may loop forever
//   QUIRE_MUTANT_REACH   output file: one line per test with its processor time in ms and the mutants that it reached
//   QUIRE_MUTANT_MEMORY_GIB  limit of the writable memory (4)
#ifndef QUIRE_MUTANTS_OF_ROOMS  // there the command line includes it, from another folder
#include "runtime.h"
#endif

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

namespace quire_mutants {
namespace {

constexpr std::size_t kMaxMutants = 1 << 18;
unsigned char reached_before_main[kMaxMutants];

long number_from(const char* variable, long otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::strtol(value, nullptr, 10);
}

class ReachLog : public testing::EmptyTestEventListener {
 public:
  explicit ReachLog(const char* path) : file_(std::fopen(path, "w")) {}

  void OnTestStart(const testing::TestInfo& /*test*/) override {
    std::fill_n(reached, kMaxMutants, 0);
    started_ = std::clock();
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    std::fprintf(file_, "%s.%s %ld", test.test_suite_name(), test.name(), (std::clock() - started_) / (CLOCKS_PER_SEC / 1000));
    for (std::size_t i = 0; i < kMaxMutants; ++i)
      if (reached[i] != 0) std::fprintf(file_, " %zu", i);
    std::fputc('\n', file_);
    std::fflush(file_);
  }

 private:
  std::FILE* file_;
  std::clock_t started_ = 0;
};

void limit(int resource, rlim_t value) {
  const rlimit both{value, value};
  setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

}  // namespace

int alive = -1;
unsigned char* reached = reached_before_main;

}  // namespace quire_mutants

int main(int argc, char** argv) {
  using namespace quire_mutants;
  testing::InitGoogleTest(&argc, argv);
  // Shared memory, so that mutants reached by the child of a death test count.
  void* shared = mmap(nullptr, kMaxMutants, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  reached = static_cast<unsigned char*>(shared);
  if (const char* path = std::getenv("QUIRE_MUTANT_REACH")) testing::UnitTest::GetInstance()->listeners().Append(new ReachLog(path));
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_DATA, static_cast<rlim_t>(number_from("QUIRE_MUTANT_MEMORY_GIB", 4)) << 30);
  if (const long seconds = number_from("QUIRE_MUTANT_CPU_S", 0); seconds > 0) limit(RLIMIT_CPU, static_cast<rlim_t>(seconds));
  alive = static_cast<int>(number_from("QUIRE_MUTANT", -1));
  return RUN_ALL_TESTS();
}
