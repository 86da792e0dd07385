#pragma once
// Encodes a block as the bytes that are digested. Each function replaces the content of `out` and reuses its storage. hash_function.cpp
// calls it for each full block. A change of one byte changes every block hash: caches on disk, routers and vLLM's own workers would then
// find nothing. Recorded hashes (tests/golden) guard all three encodings.
#include <cstdint>
#include <span>
#include <string_view>

#include "core/kv/hash/hash_bytes.h"
#include "core/kv/hash/hash_input.h"

namespace quire {

// Writes what Python's pickle (protocol 5, C implementation) writes for (parent, tuple(tokens), extra_keys or None), where every string is
// a separate object. CPython has one object for each string of a single Latin-1 character, and so has this function.
void encode_pickle(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out);
// Encodes a string alone in the same format.
void encode_pickle(std::string_view text, HashBytes& out);

// Writes what cbor2.dumps(..., canonical=True) writes for the same tuple (RFC 8949, 4.2).
void encode_cbor(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out);
void encode_cbor(std::string_view text, HashBytes& out);

// Writes quire's format: the parent's bytes, then tag, length and bytes of each field that is present. Numbers are little-endian and 32
// bits wide.
void encode_canonical(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out);
void encode_canonical(std::string_view text, HashBytes& out);

}  // namespace quire
