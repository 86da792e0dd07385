#pragma once
// Records the open transfers, their requests, and the blocks that they read or write.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/rules.h"
#include "quire/base/transfer.h"

namespace quire {

// Changed when transfers are planned and when they end, on the core's thread. Few transfers are open (CoreLimits::max_open_transfers), and
// most blocks are in no transfer, which num_touching_ shows without a search.
class OpenTransfers {
 public:
  // A copy of the transfer's content: the views in the plan become invalid when the plan is applied, but a transfer may take longer.
  struct Entry {
    TransferId id;
    RequestId request;
    TransferDirection direction = TransferDirection::load;
    TransferNeed need = TransferNeed::nothing;
    std::uint32_t tier = 0;
    std::vector<BlockId> blocks;
    std::vector<std::uint64_t> places;
  };

  OpenTransfers(std::uint32_t num_blocks, std::uint32_t max_open) : max_open_(max_open), num_touching_(num_blocks, 0) {}

  // Opens a transfer. Returns the transfer with its id and with views that are valid until it is closed, or nullopt if the limit of open
  // transfers is reached.
  std::optional<Transfer> open(const Transfer& transfer);
  // Returns null if no transfer with this id is open. The pointer is valid until the next open() or close().
  [[nodiscard]] const Entry* find(TransferId id) const;
  // Closes a transfer, which must be open.
  void close(TransferId id);

  // Returns the id that the next open() will assign.
  [[nodiscard]] TransferId next_id() const { return next_id_; }
  [[nodiscard]] std::size_t num_open() const { return entries_.size(); }
  // Returns how many more transfers may be opened.
  [[nodiscard]] std::size_t num_left() const {
    QUIRE_CHECK(entries_.size() <= max_open_, "at most max_open_ transfers are open");
    return max_open_ - entries_.size();
  }
  // Returns the number of open loads that a step needs.
  [[nodiscard]] std::size_t num_needed() const { return num_needed_; }
  // Returns whether an open load fills the block.
  [[nodiscard]] bool is_being_loaded(BlockId block) const;
  // Appends the open transfers that use the block to `fences`, each once. Ignores loads with ids from `first_new` on.
  void add_fences(BlockId block, TransferId first_new, std::vector<TransferId>& fences) const;

  [[nodiscard]] std::span<const Entry> all() const { return entries_; }

  // Stops the program if the counts are wrong.
  void check_invariants() const;
  // Returns the first rule that does not hold, or null.
  [[nodiscard]] const Rule* broken_rule() const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [max_open, next_id, entries, num_needed, spare, num_touching] = self;
    form(next_id, entries);
    if constexpr (Archive::kIsReading) form.expect(self.count_all(), "blocks of open transfers are in the pool and have slots outside");
  }

 private:
  // Counts the transfers that were read from a checkpoint, which open() has not counted. Returns false if they are impossible.
  [[nodiscard]] bool count_all();
  void count(const Entry& entry, std::int32_t by);
  [[nodiscard]] static bool is_needed(const Entry& entry) {
    return entry.direction == TransferDirection::load && entry.need != TransferNeed::nothing;
  }

  std::uint32_t max_open_;
  TransferId next_id_{0};
  std::vector<Entry> entries_;  // open transfers by ascending id
  std::size_t num_needed_ = 0;
  std::vector<Entry> spare_;                 // closed entries whose memory is reused
  std::vector<std::uint32_t> num_touching_;  // number of open transfers per block
};

}  // namespace quire
