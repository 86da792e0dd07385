#pragma once
// What a server gives to others by name (peer_server.h): blocks of a tier of its own.
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/offload.h"

namespace quire {

// Any thread; nothing of it waits for more than a copy.
class PeerShelf {
 public:
  virtual ~PeerShelf() = default;
  // Of a block of this cache group; 0: there is no such group.
  [[nodiscard]] virtual std::uint32_t block_bytes(std::uint32_t group) const = 0;
  [[nodiscard]] virtual bool holds(const OffloadKey& name) const = 0;
  // All of the block's bytes, as they were stored under this name. false: it is not there, or not any more.
  virtual bool read(const OffloadKey& name, std::span<std::byte> bytes) = 0;
};

}  // namespace quire
