#pragma once
// The bytes of a block that are digested. Each encoding replaces the content of `out`, whose storage is reused.
// Called by hash_function.cpp for each full block. A change of one byte gives every block another name: then caches on disk, routers and
// vLLM's own workers find nothing any more. Recorded names (tests/golden) hold all three to theirs.
#include <cstdint>
#include <span>
#include <string_view>

#include "core/kv/hash/hash_bytes.h"
#include "core/kv/hash/hash_input.h"

namespace quire {

// What Python's pickle (protocol 5, C implementation) writes for (parent, tuple(tokens), extra_keys or None), where every string is an
// object of its own. CPython has one object for each string of a single Latin-1 character, and so has this.
void encode_pickle(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out);
// The same for a string alone.
void encode_pickle(std::string_view text, HashBytes& out);

// What cbor2.dumps(..., canonical=True) writes for them (RFC 8949, 4.2).
void encode_cbor(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out);
void encode_cbor(std::string_view text, HashBytes& out);

// quire's own: the parent's bytes, then tag, length and bytes of each field that is present; numbers are little-endian and 32 bits wide.
void encode_canonical(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out);
void encode_canonical(std::string_view text, HashBytes& out);

}  // namespace quire
