#pragma once
// The bytes of a journal (docs/journal.md): kJournalMagic, then frames, each complete in itself and checked; the first is the header, and
// after one of kind `end` there is none. Adding a field to what is in a frame raises kJournalVersion.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/journal/byte_form.h"
#include "core/journal/mix.h"
#include "quire/journal.h"

namespace quire {

inline constexpr std::uint8_t kJournalVersion = 4;
inline constexpr std::array<std::uint8_t, 8> kJournalMagic = {'q', 'u', 'i', 'r', 'e', 'q', 'j', kJournalVersion};

// checkpoint: the state of the core as it is before the next call. Behind the header it is where the file begins; elsewhere a reader may
// pass it over, or compare.
enum class FrameKind : std::uint8_t { header = 1, calls, end, checkpoint };
inline constexpr std::uint8_t kLastFrameKind = 4;

// Before a frame's payload: its size, its kind, and the check, numbers in little endian.
inline constexpr std::size_t kFrameHeadBytes = 4 + 1 + 8;

// Of one frame at that byte of its file: one that has been moved, or is another journal's, does not pass.
inline std::uint64_t frame_check(std::uint64_t offset, FrameKind kind, std::span<const std::uint8_t> payload) {
  return Mix().add(offset).add(static_cast<std::uint64_t>(kind)).bytes(payload).digest();
}

// What the size in a frame's head can tell.
inline constexpr std::uint64_t kMaxPayloadBytes = 0xffffffff;

// Appends a frame that will be at byte `offset`. `payload` has at most kMaxPayloadBytes.
inline void append_frame(std::vector<std::uint8_t>& to, std::uint64_t offset, FrameKind kind, std::span<const std::uint8_t> payload) {
  QUIRE_CHECK(payload.size() <= kMaxPayloadBytes, "a size that is cut makes the rest of the journal unreadable");
  ByteWriter head;
  for (unsigned shift = 0; shift < 32; shift += 8) head.byte(static_cast<std::uint8_t>(payload.size() >> shift));
  head.value(kind);
  head.fixed(frame_check(offset, kind, payload));
  to.insert(to.end(), head.bytes.begin(), head.bytes.end());
  to.insert(to.end(), payload.begin(), payload.end());
}

// The magic and the frame of the header.
std::vector<std::uint8_t> journal_beginning(const JournalHeader& header);
// The payload of the last frame.
std::vector<std::uint8_t> journal_ending(JournalEnd end);
// The payload of a checkpoint's frame.
std::vector<std::uint8_t> journal_checkpoint(const JournalCheckpoint& checkpoint);

// In a frame of calls: each call (call_kind.h) is followed by what seams answered in it, kAnswerOf and the SeamCall, and ends with what it
// answered itself.
inline constexpr std::uint8_t kAnswerOf = 64, kPlanned = 128, kApplied = 129, kRefused = 130, kAnswered = 131;

}  // namespace quire
