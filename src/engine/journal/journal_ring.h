#pragma once
// The last minutes of a journal in memory: parts that begin with a state of the core, so that the oldest can go, and frames of calls.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "core/journal/journal_form.h"
#include "quire/journal.h"

namespace quire {

// Belongs to the thread that writes the journal. Holds `max_bytes` at most, with what it has reserved for more calls. Where not even the
// newest part fits it holds nothing, until the next state.
class JournalRing {
 public:
  // Begins with a core that has just been made.
  explicit JournalRing(std::uint64_t max_bytes) : max_bytes_(max_bytes) { parts_.emplace_back(); }

  // Whole calls.
  void append(std::span<const std::uint8_t> calls);
  // A part that begins with the state that this payload has (journal_checkpoint()). One that is larger than all of it is left out, and
  // the part before goes on for as long as it has room.
  void begin(const JournalProgress& progress, std::vector<std::uint8_t> checkpoint);
  // Calls are missing: nothing of before is any good.
  void lose();

  [[nodiscard]] std::uint64_t num_bytes() const { return num_bytes_; }
  [[nodiscard]] bool empty() const { return parts_.empty(); }
  // How far the core was where it begins. Not when empty.
  [[nodiscard]] const JournalProgress& first() const { return parts_.front().progress; }
  // The payload of each frame, in order.
  void visit(const std::function<void(FrameKind kind, std::span<const std::uint8_t> payload)>& visit) const;

 private:
  struct Part {
    JournalProgress progress{};
    std::vector<std::uint8_t> checkpoint{};  // empty: a core that has just been made
    std::vector<std::vector<std::uint8_t>> calls{};
    std::uint64_t num_bytes = kPartBytes;
  };
  static constexpr std::uint64_t kPartBytes = 256, kListBytes = 64;  // what a part and a list take besides

  // False: it would not fit if all but `num_kept` of the newest parts went.
  bool make_room(std::uint64_t num_bytes, std::size_t num_kept);

  const std::uint64_t max_bytes_;
  std::deque<Part> parts_;
  std::uint64_t num_bytes_ = kPartBytes;
};

}  // namespace quire
