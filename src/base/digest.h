#pragma once
// Computes SHA-256 digests with a reused context, so that no digest allocates memory.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace quire {

using Sha256Digest = std::array<std::uint8_t, 32>;

// Computes digests fast enough for thousands of short inputs per second (block hashes and keys). Not thread-safe: one object per thread.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  // Returns the digest of everything since the last finish(), and starts a new digest.
  Sha256Digest finish();

  static Sha256Digest of(std::span<const std::byte> bytes);

 private:
  evp_md_ctx_st* context_;
};

// Returns the bytes in lower-case hexadecimal.
std::string to_hex(std::span<const std::uint8_t> bytes);

}  // namespace quire
