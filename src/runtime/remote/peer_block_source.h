#pragma once
// Interface to the blocks of this server's tiers that other servers may read by offload key (peer_server.h).
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/offload.h"

namespace quire {

// Any thread may call the functions. Each call waits at most until one block is copied.
class PeerBlockSource {
 public:
  virtual ~PeerBlockSource() = default;
  // Returns the size in bytes of a block of this cache group; 0 if there is no such group.
  [[nodiscard]] virtual std::uint32_t block_bytes(std::uint32_t group) const = 0;
  [[nodiscard]] virtual bool holds(const OffloadKey& name) const = 0;
  // Copies the block that was stored under this offload key into `bytes`. Returns false if the block is not or no longer stored.
  virtual bool read(const OffloadKey& name, std::span<std::byte> bytes) = 0;
};

}  // namespace quire
