#include "base/xxhash.h"

#ifdef QUIRE_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>  // uses the widest vectors of the processor
#else
#include <xxhash.h>
#endif

#include <algorithm>

namespace quire {

bool xxhash_available() {
  return true;
}

Xxh128Digest xxh3_128(std::span<const std::byte> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Xxh128Digest digest;
  std::copy_n(canonical.digest, digest.size(), digest.begin());
  return digest;
}

}  // namespace quire
