#pragma once
// File descriptors: the limit of this process, and a spare for the moment when none is left.
#include <cstdint>

namespace quire {

// Raises the soft limit to the hard limit. Returns the resulting limit; 0: unknown.
std::uint64_t raise_descriptor_limit();

// Returns how many of `wanted` connections the process can hold, in addition to the descriptors that are open or will be.
[[nodiscard]] std::uint32_t fit_connections(std::uint32_t wanted);

// A descriptor reserved for the moment when no other is left. Giving it back lets the server accept a client just to refuse it.
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
