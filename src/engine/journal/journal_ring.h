#pragma once
// The last minutes of a journal in memory, in parts. A part begins with a checkpoint of the core and continues with frames of calls. The
// oldest part can therefore be dropped without the others becoming useless.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "core/journal/journal_format.h"
#include "quire/journal.h"

namespace quire {

// Belongs to the thread that writes the journal. Holds at most `max_bytes`, including memory that is reserved for more calls. If not even
// the newest part fits, the ring is empty until the next checkpoint.
class JournalRing {
 public:
  // Creates a ring. Its first part has no checkpoint: it begins with a newly created core.
  explicit JournalRing(std::uint64_t max_bytes) : max_bytes_(max_bytes) { parts_.emplace_back(); }

  // Appends whole calls to the newest part.
  void append(std::span<const std::uint8_t> calls);
  // Begins a part with this checkpoint (the payload of journal_checkpoint()). A checkpoint that is larger than the ring is left out; the
  // current part then continues while it has room.
  void begin(const JournalProgress& progress, std::vector<std::uint8_t> checkpoint);
  // Drops all parts. Called when calls could not be stored.
  void lose();

  [[nodiscard]] std::uint64_t num_bytes() const { return num_bytes_; }
  [[nodiscard]] bool empty() const { return parts_.empty(); }
  // Returns the core's progress at the beginning of the first part. The ring must not be empty.
  [[nodiscard]] const JournalProgress& first() const { return parts_.front().progress; }
  // Visits the payload of each frame, in order.
  void visit(const std::function<void(FrameKind kind, std::span<const std::uint8_t> payload)>& visit) const;

 private:
  struct Part {
    JournalProgress progress{};
    std::vector<std::uint8_t> checkpoint{};  // empty: a newly created core
    std::vector<std::vector<std::uint8_t>> calls{};
    std::uint64_t num_bytes = kPartBytes;
  };
  static constexpr std::uint64_t kPartBytes = 256, kListBytes = 64;  // overhead of a part and of a list

  // Drops the oldest parts until `num_bytes` more bytes fit, but keeps the newest `num_kept` parts. Returns false if the bytes still do not
  // fit.
  bool make_room(std::uint64_t num_bytes, std::size_t num_kept);

  const std::uint64_t max_bytes_;
  std::deque<Part> parts_;
  std::uint64_t num_bytes_ = kPartBytes;
};

}  // namespace quire
