#pragma once
// Chooses the instance for each request. Like a router in front of servers, it knows where it sent each request, but not what the instances
// cache.
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "quire/hash_function.h"
#include "quire/simulation.h"

namespace quire {

class InstanceRouter {
 public:
  explicit InstanceRouter(Routing routing) : routing_(routing) {}

  // Returns the chosen instance. `names` are the hashes of the request's blocks, which only by_prefix reads. `num_open` is the number of
  // unfinished requests per instance.
  std::uint32_t choose(std::span<const BlockHash> names, std::span<const std::uint32_t> num_open);

 private:
  std::uint32_t by_prefix(std::span<const BlockHash> names, std::span<const std::uint32_t> num_open);

  const Routing routing_;
  std::uint64_t num_chosen_ = 0;
  // The instance that last received a prefix. Keys are the hashes of a prompt's first block and of every kStride-th block after it; the
  // hash of a block depends on the whole prefix. There are two generations: when the young one is full, it becomes the old one, and the
  // previous old one is dropped.
  std::unordered_map<std::uint64_t, std::uint32_t> young_, old_;
};

}  // namespace quire
