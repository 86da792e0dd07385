#pragma once
// Names of blocks in a journal without tokens. A name is a digest of the text up to the end of its block, by a function that anybody can
// compute, so who guesses a text could look it up; under a key that is written nowhere that cannot be done. Which blocks are equal, and no
// more, is what the core decides by.
// Used by the recorder of calls and by checkpoints, on the core's thread.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/hash_function.h"

namespace quire {

// SipHash-2-4 with 128 bits. A name of 32 bytes has them twice.
BlockHash pseudonym(const NameKey& key, const BlockHash& name);

// Of names one after the other, of NameKey::name_bytes each; zeros for what is left behind them (of a request that will be refused).
std::vector<std::uint8_t> pseudonyms(const NameKey& key, std::span<const std::uint8_t> names);

}  // namespace quire
