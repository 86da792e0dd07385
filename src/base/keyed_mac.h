#pragma once
// HMAC-SHA-256: who does not have the key can neither make nor change what carries one.
#include <cstddef>
#include <span>
#include <vector>

#include "base/digest.h"

struct evp_mac_ctx_st;

namespace quire {

// Not thread-safe: one object per thread.
class KeyedMac {
 public:
  // Of any length, also none: then it is a digest, which keeps nobody out.
  explicit KeyedMac(std::span<const std::byte> key);
  ~KeyedMac();
  KeyedMac(const KeyedMac&) = delete;
  KeyedMac& operator=(const KeyedMac&) = delete;

  void update(std::span<const std::byte> bytes);
  // Of everything since the last finish(); the object is fresh afterwards.
  Sha256Digest finish();

  // In a time that does not tell where they differ.
  static bool are_equal(std::span<const std::byte> mac, std::span<const std::byte> other);

 private:
  void begin();

  const std::vector<std::byte> key_;
  evp_mac_ctx_st* context_;
};

}  // namespace quire
