#pragma once
// Replaces block hashes in a journal without tokens. A block hash is a digest of the text up to the end of its block. Its function is
// public, so a guessed text could be looked up. Under a secret key, which is never written, that is impossible. The core's decisions depend
// only on which blocks are equal. Used by the recorder of calls and by checkpoints, on the core's thread.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/hash_function.h"

namespace quire {

// Returns SipHash-2-4 with 128 bits. A hash of 32 bytes has them twice.
BlockHash pseudonym(const PseudonymKey& key, const BlockHash& name);

// Replaces concatenated hashes of PseudonymKey::hash_bytes each. Bytes left after the last whole one become zeros (the request will be
// refused).
std::vector<std::uint8_t> pseudonyms(const PseudonymKey& key, std::span<const std::uint8_t> names);

}  // namespace quire
