#pragma once
// What has become of blocks by their names: which are stored, which were, and who needed their room. Memory is fixed: of the lost ones the
// oldest is forgotten first.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/events.h"
#include "quire/base/ids.h"

namespace quire {

enum class Loss : std::uint8_t { none, evicted, forgotten, reset };

// Of a name. It outlives the block: a name that is stored anew keeps what is known of its last loss.
struct BlockStory {
  std::uint64_t key = 0;  // of the name (BlockMemory::key_of)
  // Names that were stored behind this one, the last and the last other one; 0: none.
  std::uint64_t last_child = 0, child_before = 0;
  std::uint32_t num_copies = 0;  // blocks that hold it now
  Loss loss = Loss::none;        // the last one
  StepId lost_step{};
  double lost_s = 0.0;
  RequestId lost_for{};
  std::uint64_t stored_at = 0, lost_at = 0;  // BlockMemory::now() of the first copy that is there, and of the last loss
};

// Belongs to one Explainer, on the core's thread.
class BlockMemory {
 public:
  BlockMemory(std::uint32_t num_names, std::uint32_t block_size);

  // Names are digests: 64 bits of one tell it from all others.
  [[nodiscard]] static std::uint64_t key_of(const NameBytes& name);
  // Grows with each change.
  [[nodiscard]] std::uint64_t now() const { return now_; }
  // Null: never stored, or forgotten. Valid until the next change.
  [[nodiscard]] const BlockStory* find(std::uint64_t key) const;
  // Of a block that find() has told of.
  [[nodiscard]] std::span<const TokenId> tokens_of(const BlockStory& story) const;
  // The step of the newest loss that has been forgotten; 0: none has.
  [[nodiscard]] StepId forgotten_until() const { return forgotten_until_; }

  // `tokens` are block_size many, or none where they are not known.
  void stored(std::uint64_t key, std::uint64_t parent, std::span<const TokenId> tokens);
  void lost(std::uint64_t key, Loss loss, const Event& event);
  void reset(const Event& event);

  // Stops the program if chains and the list of the lost do not agree with the stories. Slow.
  void check_invariants() const;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Link {
    std::uint32_t next_in_bucket = kNone;
    std::uint32_t older = kNone, newer = kNone;  // among the lost ones
  };

  [[nodiscard]] std::uint32_t bucket(std::uint64_t key) const {
    return static_cast<std::uint32_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_);
  }
  [[nodiscard]] std::uint32_t place_of(std::uint64_t key) const;
  std::uint32_t take_place(std::uint64_t key);
  void forget(std::uint32_t place);
  void note_loss(std::uint32_t place, Loss loss, const Event& event);
  void push_newest(std::uint32_t place);
  void unlink(std::uint32_t place);

  const std::uint32_t block_size_;
  std::vector<BlockStory> stories_;  // by place
  std::vector<Link> links_;
  std::vector<TokenId> tokens_;
  std::vector<std::uint32_t> buckets_;
  std::uint32_t num_used_ = 0;  // places that have been taken once
  std::uint32_t oldest_ = kNone, newest_ = kNone;
  unsigned shift_;
  std::uint64_t now_ = 0;
  StepId forgotten_until_{};
};

}  // namespace quire
