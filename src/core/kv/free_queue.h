#pragma once
// Free blocks in the order of their reuse, front first. A doubly linked list in an array indexed by block id. push, pop and remove are O(1)
// and allocate nothing.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/base/ids.h"

namespace quire {

// The queue consists of these segments, in this order. All blocks of a segment are reused before the blocks of the next one.
enum class FreeSegment : std::uint8_t {
  normal,
  reused,    // segmented LRU: a request found the block after it was cached
  retained,  // a request asked to keep the block for some time
};
inline constexpr std::size_t kNumFreeSegments = 3;

// Maximum number of blocks in the segments after the first one.
struct SegmentLimits {
  std::uint32_t reused = 0;
  std::uint32_t retained = 0;
};

// Belongs to the block pool. The block at the front is reused next, so the place where a block enters decides how long its content stays.
class FreeQueue {
 public:
  using Counts = std::array<std::uint32_t, kNumFreeSegments>;

  // Begins with all blocks 0 .. num_blocks - 1 free, in this order.
  explicit FreeQueue(std::uint32_t num_blocks, const SegmentLimits& limits = {});

  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool contains(BlockId block) const {
    QUIRE_CHECK(block.value < num_blocks(), "the queried block is in the pool");
    return links_[block.value].next != kUnlinked;
  }

  // The queue must not be empty.
  BlockId pop_front();
  // Adds the block at the end of the segment. If the segment then has more blocks than its limit, its oldest block becomes the newest
  // block of the segment before it, and so on.
  void push_back(BlockId block, FreeSegment segment = FreeSegment::normal);
  // Adds the block at the front of the queue.
  void push_front(BlockId block);
  void remove(BlockId block);
  // Returns the numbers of blocks, indexed by segment.
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] std::uint32_t count(FreeSegment segment) const { return counts_[static_cast<std::size_t>(segment)]; }
  // Returns the block that entered the segment first. The segment must not be empty.
  [[nodiscard]] BlockId oldest(FreeSegment segment) const;
  // Puts all blocks into the first segment. The order of blocks does not change.
  void merge_segments();

  // Returns the blocks in order of reuse; for tests and checks.
  [[nodiscard]] std::vector<BlockId> to_vector() const;
  // Stops the program if the links of two neighbours disagree or a count is wrong.
  void check_invariants() const;
  // Replaces the content by these blocks, in this order, with these numbers of blocks in the segments. Returns false if a block is out of
  // range or listed twice, or if a number is above its limit. The queue is then unusable.
  [[nodiscard]] bool assign(std::span<const BlockId> blocks, const Counts& counts);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [limits, links, segment_of, size, counts] = self;
    std::vector<BlockId> order;
    Counts sizes = counts;
    if constexpr (!Archive::kIsReading) order = self.to_vector();
    form(order);
    for (std::uint32_t& count : sizes) form(count);
    if constexpr (Archive::kIsReading) form.expect(self.assign(order, sizes), "the free queue contains blocks of the pool, each once");
  }

 private:
  static constexpr std::uint32_t kUnlinked = UINT32_MAX;
  // Indices take half the memory of pointers. The link of a block is at the index of its id.
  struct Link {
    std::uint32_t prev = kUnlinked;
    std::uint32_t next = kUnlinked;
  };

  // The arguments of link_between() and unlink() are indices of links_: of a block, of the sentinel, or of a boundary.
  void link_between(std::uint32_t prev, std::uint32_t at, std::uint32_t next);
  void unlink(std::uint32_t at);
  void clear();
  // Moves blocks to earlier segments until no segment has more blocks than its limit.
  void apply_limits();
  void move_boundary(std::size_t segment);
  [[nodiscard]] std::uint32_t limit(std::size_t segment) const { return segment == 1 ? limits_.reused : limits_.retained; }
  [[nodiscard]] std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(segment_of_.size()); }
  // The boundary lies before the first block of the segment. The first segment begins after the sentinel.
  [[nodiscard]] std::uint32_t boundary(std::size_t segment) const { return num_blocks() + static_cast<std::uint32_t>(segment); }
  [[nodiscard]] std::uint32_t sentinel() const { return boundary(0); }

  SegmentLimits limits_;
  // The links of the blocks, of the sentinel (its next is the head, its prev the tail), and of the boundaries.
  std::vector<Link> links_;
  std::vector<std::uint8_t> segment_of_;  // indexed by block id; 0 for a block that is not free
  std::uint32_t size_ = 0;
  Counts counts_{};  // indexed by segment
};

}  // namespace quire
