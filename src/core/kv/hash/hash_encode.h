#pragma once
// Encodes the input of a block hash as bytes. Each function replaces the content of `out` and reuses its memory. hash_function.cpp calls it
// for each full block. If one byte of an encoding changes, every block hash changes: caches on disk, routers and vLLM's workers would then
// find nothing. Recorded hashes (tests/golden) test all three encodings.
#include <cstdint>
#include <span>
#include <string_view>

#include "core/kv/hash/hash_bytes.h"
#include "core/kv/hash/hash_input.h"

namespace quire {

// Writes the bytes of Python's pickle (protocol 5, C implementation) for (parent, tuple(tokens), extra_keys or None), where every string is
// a separate object. Exception: as in CPython, equal strings of one Latin-1 character are the same object.
void encode_pickle(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out);
// Encodes a single string in the same format.
void encode_pickle(std::string_view text, HashBytes& out);

// Writes the bytes of cbor2.dumps(..., canonical=True) for the same tuple (RFC 8949, 4.2).
void encode_cbor(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out);
void encode_cbor(std::string_view text, HashBytes& out);

// Writes quire's own format: the parent's bytes, then tag, length and bytes of each field that is present. Numbers are 32 bits wide and
// little-endian.
void encode_canonical(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out);
void encode_canonical(std::string_view text, HashBytes& out);

}  // namespace quire
