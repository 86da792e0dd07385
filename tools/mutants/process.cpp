// The state of mutants (runtime.h, which the command line includes) in a program of the product, which Python tests start. Environment
// variables:
//   QUIRE_MUTANT         the active mutant; none if unset
//   QUIRE_MUTANT_REACH   a file that gets a byte per mutant: 1 for each that this process, or another one with the same file, reached
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace quire_mutants {
namespace {

constexpr std::size_t kMaxMutants = 1 << 18;

unsigned char* map_reached() {
  const char* path = std::getenv("QUIRE_MUTANT_REACH");
  const int file = path == nullptr ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0 && ftruncate(file, kMaxMutants) != 0) std::abort();
  void* at = mmap(nullptr, kMaxMutants, PROT_READ | PROT_WRITE, file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);
  if (at == MAP_FAILED) std::abort();
  return static_cast<unsigned char*>(at);
}

int read_alive() {
  const char* value = std::getenv("QUIRE_MUTANT");
  return value == nullptr ? -1 : std::atoi(value);
}

}  // namespace

// The first constructors of the program may reach mutants.
[[gnu::init_priority(101)]] int alive = read_alive();
[[gnu::init_priority(101)]] unsigned char* reached = map_reached();

}  // namespace quire_mutants
