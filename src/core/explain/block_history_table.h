#pragma once
// Records for each tenant which block hashes are stored, which were stored before, and for which request their blocks were evicted. A block
// that several tenants have used has one record per tenant, so that no record reveals what another tenant has stored. The memory is fixed:
// the oldest record of a lost block is dropped first.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/events.h"
#include "quire/base/ids.h"

namespace quire {

enum class Loss : std::uint8_t { none, evicted, forgotten, reset };

// One tenant's record of a block hash. It is kept when the block is lost, and keeps its last loss when the hash is stored again.
struct BlockHistory {
  std::uint64_t key = 0;  // key of the block hash (BlockHistoryTable::key_of())
  std::uint64_t tenant = 0;
  // Keys of the last two different block hashes that were stored directly after this one; the later one first. 0: none.
  std::uint64_t last_child = 0, child_before = 0;
  std::uint32_t num_copies = 0;  // number of blocks that have the hash now
  Loss loss = Loss::none;        // cause of the last loss
  StepId lost_step{};
  double lost_s = 0.0;
  RequestId lost_for{};
  // BlockHistoryTable::now() when the first of the current copies was stored, and at the last loss.
  std::uint64_t stored_at = 0, lost_at = 0;
};

// Belongs to one Explainer, on the core's thread.
class BlockHistoryTable {
 public:
  BlockHistoryTable(std::uint32_t num_names, std::uint32_t block_size);

  // Returns the first 64 bits of the hash. They identify it, because block hashes are digests.
  [[nodiscard]] static std::uint64_t key_of(const BlockHashBytes& name);
  // Returns a counter that increases with each change.
  [[nodiscard]] std::uint64_t now() const { return now_; }
  // Returns null if no request of the tenant has used the block, or if its record was dropped. Valid until the next change.
  [[nodiscard]] const BlockHistory* find(std::uint64_t key, std::uint64_t tenant) const;
  // Returns the tokens of the block of a record that find() returned.
  [[nodiscard]] std::span<const TokenId> tokens_of(const BlockHistory& history) const;
  // Returns the step of the newest loss whose record was dropped, or 0 if none was dropped.
  [[nodiscard]] StepId forgotten_until() const { return forgotten_until_; }

  // Records that a request of the tenant has stored or found the block. `tokens` contains block_size tokens, or none if they are unknown.
  void stored(std::uint64_t key, std::uint64_t parent, std::uint64_t tenant, std::span<const TokenId> tokens);
  // Record a loss for every tenant: of one block hash, or of all hashes.
  void lost(std::uint64_t key, Loss loss, const Event& event);
  void reset(const Event& event);

  // Stops the program if the chains, the list of lost hashes and the records are inconsistent. Slow.
  void check_invariants() const;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Link {
    std::uint32_t next_in_bucket = kNone;
    std::uint32_t older = kNone, newer = kNone;  // in the list of lost hashes
  };

  [[nodiscard]] std::uint32_t bucket(std::uint64_t key) const {
    return static_cast<std::uint32_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_);
  }
  [[nodiscard]] std::uint32_t entry_of(std::uint64_t key, std::uint64_t tenant) const;
  std::uint32_t take_entry(std::uint64_t key, std::uint64_t tenant);
  void forget(std::uint32_t place);
  void note_loss(std::uint32_t place, Loss loss, const Event& event);
  void push_newest(std::uint32_t place);
  void unlink(std::uint32_t place);

  const std::uint32_t block_size_;
  std::vector<BlockHistory> histories_;  // indexed by entry
  std::vector<Link> links_;
  std::vector<TokenId> tokens_;
  std::vector<std::uint32_t> buckets_;
  std::uint32_t num_used_ = 0;  // number of entries that were used at least once
  std::uint32_t oldest_ = kNone, newest_ = kNone;
  unsigned shift_;
  std::uint64_t now_ = 0;
  StepId forgotten_until_{};
};

}  // namespace quire
