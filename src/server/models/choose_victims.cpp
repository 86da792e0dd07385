#include "server/models/choose_victims.h"

#include <algorithm>
#include <tuple>

namespace quire {

bool fits(std::span<const ResidentModel> residents, std::uint64_t needed_bytes, const MemoryLimits& limits) {
  std::uint64_t bytes = needed_bytes;
  for (const ResidentModel& resident : residents) bytes += resident.bytes;
  return (limits.bytes == 0 || bytes <= limits.bytes) && (limits.max_models == 0 || residents.size() < limits.max_models);
}

std::optional<std::vector<std::size_t>> choose_victims(std::span<const ResidentModel> residents, std::uint64_t needed_bytes,
                                                       const MemoryLimits& limits) {
  std::vector<std::size_t> candidates;
  for (std::size_t i = 0; i < residents.size(); ++i)
    if (!residents[i].must_stay) candidates.push_back(i);
  std::ranges::sort(candidates, {}, [&](std::size_t i) { return std::tuple(residents[i].is_busy, residents[i].last_use); });
  for (std::size_t num_victims = 0; num_victims <= candidates.size(); ++num_victims) {
    const std::span victims = std::span(candidates).first(num_victims);
    std::vector<ResidentModel> rest;
    for (std::size_t i = 0; i < residents.size(); ++i)
      if (std::ranges::find(victims, i) == victims.end()) rest.push_back(residents[i]);
    if (fits(rest, needed_bytes, limits)) return std::vector<std::size_t>(victims.begin(), victims.end());
  }
  return std::nullopt;
}

}  // namespace quire
