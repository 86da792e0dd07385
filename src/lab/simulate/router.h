#pragma once
// Which instance a request goes to. It knows what it has sent where, as a router in front of servers does, and not what they keep.
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

  // `names` of the request's blocks count by_prefix only. `num_open` per instance: requests that have not ended.
  std::uint32_t choose(std::span<const BlockHash> names, std::span<const std::uint32_t> num_open);

 private:
  std::uint32_t by_prefix(std::span<const BlockHash> names, std::span<const std::uint32_t> num_open);

  const Routing routing_;
  std::uint64_t num_chosen_ = 0;
  // Who computed a prefix last, by the name of every kStride-th of its blocks and of the first. Two halves: when the younger is full, the
  // older goes.
  std::unordered_map<std::uint64_t, std::uint32_t> young_, old_;
};

}  // namespace quire
