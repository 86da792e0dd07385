#pragma once
// SHA-256 with a context that is reused: no allocation per digest.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace quire {

using Sha256Digest = std::array<std::uint8_t, 32>;

// Not thread-safe: one object per thread.
// For names of blocks and for keys: thousands of short digests a second.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  // The digest of everything since the last finish(); the object is fresh afterwards.
  Sha256Digest finish();

  static Sha256Digest of(std::span<const std::byte> bytes);

 private:
  evp_md_ctx_st* context_;
};

// Lower-case hexadecimal.
std::string to_hex(std::span<const std::uint8_t> bytes);

}  // namespace quire
