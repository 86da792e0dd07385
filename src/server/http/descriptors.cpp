#include "server/http/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace quire {

namespace {

// Descriptors reserved for files, pipes and clients that are being refused.
constexpr std::uint64_t kOthers = 32;

std::uint64_t num_open() {
  std::error_code code;
  const std::filesystem::directory_iterator all("/proc/self/fd", code);
  return code ? 64 : static_cast<std::uint64_t>(std::distance(begin(all), end(all)));
}

}  // namespace

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  return ::setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

std::uint32_t fit_connections(std::uint32_t wanted, std::uint32_t descriptors_each) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const std::uint64_t taken = num_open() + kOthers;
  const std::uint64_t room = limit.rlim_cur > taken ? (limit.rlim_cur - taken) / descriptors_each : 1;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(room, 1, std::max(wanted, 1U)));
}

void SpareDescriptor::take() {
  if (descriptor_ < 0) descriptor_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void SpareDescriptor::release() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

}  // namespace quire
