#pragma once
// Replaces block hashes in a journal without tokens. A block hash is a digest of the text up to the end of its block, and the hash function
// is public. With a block hash, a guess of the text could therefore be checked. With a secret key, which is never written, this is
// impossible. The core's decisions depend only on which blocks are equal. Used by the recorders of calls and of answers, and by
// checkpoints, on the core's thread.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/hash_function.h"

namespace quire {

// Returns the 128-bit SipHash-2-4 of the hash. A pseudonym of 32 bytes repeats these 16 bytes.
BlockHash pseudonym(const PseudonymKey& key, const BlockHash& name);

// Replaces concatenated hashes of PseudonymKey::hash_bytes bytes each. Bytes after the last complete hash become zeros; such a request is
// refused.
std::vector<std::uint8_t> pseudonyms(const PseudonymKey& key, std::span<const std::uint8_t> names);

}  // namespace quire
