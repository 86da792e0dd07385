#pragma once
// Raises the process's limit of file descriptors, and keeps a spare descriptor for the case that the limit is reached.
#include <cstdint>

namespace quire {

// Raises the soft limit to the hard limit. Returns the resulting limit, or 0 if it is unknown.
std::uint64_t raise_descriptor_limit();

// Returns how many of the `wanted` connections fit into the limit, in addition to open and reserved descriptors. A connection needs
// `descriptors_each` of them.
[[nodiscard]] std::uint32_t fit_connections(std::uint32_t wanted, std::uint32_t descriptors_each = 1);

// A reserved file descriptor. When no other descriptor is left, releasing it lets the server accept a client in order to refuse it.
class SpareDescriptor {
 public:
  SpareDescriptor() { take(); }
  ~SpareDescriptor() { release(); }
  SpareDescriptor(const SpareDescriptor&) = delete;
  SpareDescriptor& operator=(const SpareDescriptor&) = delete;

  void take();
  void release();

 private:
  int descriptor_ = -1;
};

}  // namespace quire
