#pragma once
// Format of keys and values in a store to which other programs may also write:
//
//   key    quire:<8 bytes of a MAC with the deployment's secret>:<fingerprint>:<block hash>:<cache group>, bytes in hexadecimal
//   value  "quire-kv" and a version (8 + 4 bytes), length of the block (4, little endian), the block, HMAC-SHA-256 (32)
//
// The MAC covers key, header and block, so a value is valid only under its key.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/keyed_mac.h"
#include "quire/offload.h"
#include "runtime/tier/tier_table.h"

namespace quire {

inline constexpr std::size_t kRemoteHeaderBytes = 16, kRemoteMacBytes = sizeof(Sha256Digest);

// Returns the size in bytes of the value for a block of `block_bytes` bytes.
inline constexpr std::uint64_t remote_value_bytes(std::uint64_t block_bytes) {
  return kRemoteHeaderBytes + block_bytes + kRemoteMacBytes;
}

class RemoteKeys {
 public:
  // Keys differ between secrets and between fingerprints, so different deployments and models do not see each other's blocks.
  RemoteKeys(std::span<const std::byte> secret, const TierFingerprint& fingerprint);
  [[nodiscard]] std::string key_of(const OffloadKey& name) const;

 private:
  std::string prefix_;
};

// Seals and verifies values. Used by one thread.
class RemoteValueCodec {
 public:
  explicit RemoteValueCodec(std::span<const std::byte> secret) : mac_(secret) {}

  // Writes header and MAC around the bytes of the block, which are already in `value`.
  void seal(std::string_view key, std::span<std::byte> value);
  // Returns the block in `value`; nullopt if `value` was not sealed under this key with a block of `block_bytes` bytes, or was changed.
  std::optional<std::span<std::byte>> open(std::string_view key, std::span<std::byte> value, std::uint64_t block_bytes);

 private:
  Sha256Digest mac_of(std::string_view key, std::span<const std::byte> sealed);

  KeyedMac mac_;
};

}  // namespace quire
