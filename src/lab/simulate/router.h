#pragma once
// Chooses the instance of a request. Like a router in front of servers, it knows which requests it sent where, and not what instances
// cache.
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "quire/hash_function.h"
#include "quire/simulation.h"

namespace quire {

class Router {
 public:
  explicit Router(Routing routing) : routing_(routing) {}

  // Only by_prefix reads `names`, the hashes of the request's blocks. `num_open` has the number of unfinished requests per instance.
  std::uint32_t choose(std::span<const BlockHash> names, std::span<const std::uint32_t> num_open);

 private:
  std::uint32_t by_prefix(std::span<const BlockHash> names, std::span<const std::uint32_t> num_open);

  const Routing routing_;
  std::uint64_t num_chosen_ = 0;
  // The instance that last computed a prefix. Keys are hashes of a prompt's first block and of every kStride-th block; a block's hash
  // covers its prefix. There are two generations: when the young one is full, the old one is dropped.
  std::unordered_map<std::uint64_t, std::uint32_t> young_, old_;
};

}  // namespace quire
