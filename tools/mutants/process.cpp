// The state of mutants in a program of the product that Python tests start. The compiler's command line includes runtime.h. The
// program reads these environment variables:
//   QUIRE_MUTANT         the active mutant; none if unset
//   QUIRE_MUTANT_REACH   a file with one byte per mutant: 1 if a process with this file has reached the mutant
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace quire_mutants {
namespace {

constexpr std::size_t kMaxMutants = 1 << 18;
unsigned char reached_without_file[kMaxMutants];

// Runs before the constructors of the program, because they may reach mutants.
[[gnu::constructor(101)]] void begin() {
  if (const char* value = std::getenv("QUIRE_MUTANT")) alive = std::atoi(value);
  const char* path = std::getenv("QUIRE_MUTANT_REACH");
  if (path == nullptr) return;
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, kMaxMutants) != 0) std::abort();
  void* at = mmap(nullptr, kMaxMutants, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) std::abort();
  reached = static_cast<unsigned char*>(at);
}

}  // namespace

int alive = -1;
unsigned char* reached = reached_without_file;

}  // namespace quire_mutants
