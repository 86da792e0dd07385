#pragma once
// Blocks of this server's tiers that it gives to other servers by offload key (peer_server.h).
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/offload.h"

namespace quire {

// Any thread may call the functions. Each call waits at most for one copy.
class PeerBlockSource {
 public:
  virtual ~PeerBlockSource() = default;
  // Returns the bytes of a block of this cache group; 0: there is no such group.
  [[nodiscard]] virtual std::uint32_t block_bytes(std::uint32_t group) const = 0;
  [[nodiscard]] virtual bool holds(const OffloadKey& name) const = 0;
  // Copies all bytes of the block that was stored under this offload key. Returns false if the block is not stored, or no longer.
  virtual bool read(const OffloadKey& name, std::span<std::byte> bytes) = 0;
};

}  // namespace quire
