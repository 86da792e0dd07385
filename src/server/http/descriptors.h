#pragma once
// File descriptors: how many this process may have, and what to do when there is none left.
#include <cstdint>

namespace quire {

// Raises the soft limit to the hard one; what it is then.
std::uint64_t raise_descriptor_limit();

// How many of `wanted` connections the process can hold beside what it has open and will open.
[[nodiscard]] std::uint32_t fit_connections(std::uint32_t wanted);

// A descriptor kept for the moment when no other is left: given back, it lets the server accept a client just to turn it away.
class SpareDescriptor {
 public:
  SpareDescriptor() { take(); }
  ~SpareDescriptor() { give_back(); }
  SpareDescriptor(const SpareDescriptor&) = delete;
  SpareDescriptor& operator=(const SpareDescriptor&) = delete;

  void take();
  void give_back();

 private:
  int descriptor_ = -1;
};

}  // namespace quire
