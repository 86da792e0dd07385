#pragma once
// The transfers that are open: whose they are and which blocks they touch.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/rules.h"
#include "quire/base/transfer.h"

namespace quire {

// Written by the planning of transfers and by their ends, on the core's thread. There are few (CoreLimits::max_open_transfers), most blocks
// are in none, and num_touching_ answers for those at once.
class OpenTransfers {
 public:
  // Copies of what the transfer names: the views in the plan are over when the plan is applied, and a transfer may last longer.
  struct Entry {
    TransferId id;
    RequestId request;
    TransferDirection direction = TransferDirection::load;
    TransferNeed need = TransferNeed::nothing;
    std::uint32_t tier = 0;
    std::vector<BlockId> blocks;
    std::vector<std::uint64_t> places;

    template <class Form, class Self>
    static void fields(Form& form, Self& self) {
      auto& [id, request, direction, need, tier, blocks, places] = self;
      form(id, request, direction, need, tier, blocks, places);
    }
  };

  OpenTransfers(std::uint32_t num_blocks, std::uint32_t max_open) : max_open_(max_open), num_touching_(num_blocks, 0) {}

  // The transfer's id, and views that stay until it is closed; nullopt: as many are open as may be.
  std::optional<Transfer> open(const Transfer& transfer);
  // Null if no such transfer is open; valid until the next open() or close().
  [[nodiscard]] const Entry* find(TransferId id) const;
  // It must be open.
  void close(TransferId id);

  // Of the transfers that the next open() makes.
  [[nodiscard]] TransferId next_id() const { return next_id_; }
  [[nodiscard]] std::size_t num_open() const { return entries_.size(); }
  // That may be opened besides.
  [[nodiscard]] std::size_t num_left() const {
    QUIRE_CHECK(entries_.size() <= max_open_, "no more are open than may be");
    return max_open_ - entries_.size();
  }
  // Of those, loads that a step does not run without.
  [[nodiscard]] std::size_t num_needed() const { return num_needed_; }
  // An open load fills the block.
  [[nodiscard]] bool is_being_loaded(BlockId block) const;
  // Open transfers that touch the block, loads from `first_new` on left out: appended to `fences` where they are not in it yet.
  void add_fences(BlockId block, TransferId first_new, std::vector<TransferId>& fences) const;

  [[nodiscard]] std::span<const Entry> all() const { return entries_; }

  // Stops the program if the books do not agree.
  void check_invariants() const;
  // The first rule that does not hold; null: all do.
  [[nodiscard]] const Rule* broken_rule() const;

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [max_open, next_id, entries, num_needed, spare, num_touching] = self;
    form(next_id, entries);
    if constexpr (Form::kReads) form.expect(self.count_all(), "open transfers have places for their blocks");
  }

 private:
  // Of transfers that were not open()ed here. False: they cannot be open.
  [[nodiscard]] bool count_all();
  void count(const Entry& entry, std::int32_t by);
  [[nodiscard]] static bool is_needed(const Entry& entry) {
    return entry.direction == TransferDirection::load && entry.need != TransferNeed::nothing;
  }

  std::uint32_t max_open_;
  TransferId next_id_{0};
  std::vector<Entry> entries_;  // open, by rising id
  std::size_t num_needed_ = 0;
  std::vector<Entry> spare_;                 // their memory is used again
  std::vector<std::uint32_t> num_touching_;  // open transfers, by block
};

}  // namespace quire
