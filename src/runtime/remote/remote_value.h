#pragma once
// What a block is called in a store that others write to as well, and how what comes back is known to be what was stored:
//
//   key    quire:<8 bytes of the deployment's key, hashed>:<fingerprint>:<name of the block>:<cache group>, in hexadecimal
//   value  "quire-kv" and a version (8 + 4 bytes), length of the block (4, little endian), the block, HMAC-SHA-256 (32)
//
// The MAC is over key, header and block, so a value is of use under its own key alone.
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

// Of a block with so many bytes.
inline constexpr std::uint64_t remote_value_bytes(std::uint64_t block_bytes) {
  return kRemoteHeaderBytes + block_bytes + kRemoteMacBytes;
}

class RemoteKeys {
 public:
  // Deployments with other keys do not see each other's blocks, and models neither.
  RemoteKeys(std::span<const std::byte> secret, const TierFingerprint& fingerprint);
  [[nodiscard]] std::string key_of(const OffloadKey& name) const;

 private:
  std::string prefix_;
};

// One thread.
class RemoteSeal {
 public:
  explicit RemoteSeal(std::span<const std::byte> secret) : mac_(secret) {}

  // `value` has the bytes of the block where they belong: header and MAC are written.
  void seal(std::string_view key, std::span<std::byte> value);
  // The block in it; nullopt: it is not what was sealed under this key, whole and unchanged, with a block of so many bytes.
  std::optional<std::span<std::byte>> open(std::string_view key, std::span<std::byte> value, std::uint64_t block_bytes);

 private:
  Sha256Digest mac_of(std::string_view key, std::span<const std::byte> sealed);

  KeyedMac mac_;
};

}  // namespace quire
