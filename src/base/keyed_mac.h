#pragma once
// HMAC-SHA-256. Without the key, data with a valid MAC can be neither created nor changed.
#include <cstddef>
#include <span>
#include <vector>

#include "base/digest.h"

struct evp_mac_ctx_st;

namespace quire {

// Computes and compares MACs. Not thread-safe: one object per thread.
class KeyedMac {
 public:
  // Uses a key of any length. With an empty key the MAC is only a digest and protects nothing.
  explicit KeyedMac(std::span<const std::byte> key);
  ~KeyedMac();
  KeyedMac(const KeyedMac&) = delete;
  KeyedMac& operator=(const KeyedMac&) = delete;

  void update(std::span<const std::byte> bytes);
  // Returns the MAC of everything since the last finish(), and starts a new MAC.
  Sha256Digest finish();

  // Returns true if the MACs are equal. The time does not depend on where they differ.
  static bool are_equal(std::span<const std::byte> mac, std::span<const std::byte> other);

 private:
  void begin();

  const std::vector<std::byte> key_;
  evp_mac_ctx_st* context_;
};

}  // namespace quire
