#pragma once
// Typed identifiers, so that a BlockId cannot be used in place of a RequestId.
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace quire {

template <class Tag, class Rep>
// An identifier of one kind. It compares and hashes like its number, and does not convert to other kinds. BlockId{7} creates one.
struct Id {
  using rep = Rep;
  Rep value{};
  friend constexpr auto operator<=>(Id, Id) = default;
};

// A physical KV block, with the same index in every layer. Block 0 is the null block.
using BlockId = Id<struct BlockTag, std::uint32_t>;
// A request, unique for the life of an engine and never reused.
using RequestId = Id<struct RequestTag, std::uint64_t>;
// A row of the worker's persistent batch: 0 <= value < max_num_seqs. It is reused after its request has left the batch.
using Slot = Id<struct SlotTag, std::uint32_t>;
// One scheduler step, counted from 0.
using StepId = Id<struct StepTag, std::uint64_t>;
// Index into the vocabulary.
using TokenId = std::int32_t;

// The null block. In block tables it replaces blocks that a window has passed. It is never allocated, freed or written.
inline constexpr BlockId kNullBlock{0};

}  // namespace quire

template <class Tag, class Rep>
struct std::hash<quire::Id<Tag, Rep>> {
  std::size_t operator()(quire::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value); }
};
