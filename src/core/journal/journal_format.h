#pragma once
// The bytes of a journal (docs/journal.md): kJournalMagic, then frames. Each frame is complete in itself and has a check. The first one is
// the header, and no frame follows one of kind `end`. A new field in a frame raises kJournalVersion.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/journal/byte_stream.h"
#include "core/journal/mix.h"
#include "quire/journal.h"

namespace quire {

inline constexpr std::uint8_t kJournalVersion = 5;
inline constexpr std::array<std::uint8_t, 8> kJournalMagic = {'q', 'u', 'i', 'r', 'e', 'q', 'j', kJournalVersion};

// checkpoint: the state of the core before the next call. Directly after the header, it is the state that the file begins with. Elsewhere a
// reader may skip it, or compare it.
enum class FrameKind : std::uint8_t { header = 1, calls, end, checkpoint };
inline constexpr std::uint8_t kLastFrameKind = 4;

// The head before a frame's payload: size, kind and check. Numbers are little-endian.
inline constexpr std::size_t kFrameHeadBytes = 4 + 1 + 8;

// Returns the check of a frame at that byte of its file. A frame that was moved to another byte fails it.
inline std::uint64_t frame_check(std::uint64_t offset, FrameKind kind, std::span<const std::uint8_t> payload) {
  return WordHasher().add(offset).add(static_cast<std::uint64_t>(kind)).bytes(payload).digest();
}

// Largest size that a frame's head can express.
inline constexpr std::uint64_t kMaxPayloadBytes = 0xffffffff;

// Appends a frame that will be at byte `offset`. `payload` has at most kMaxPayloadBytes.
inline void append_frame(std::vector<std::uint8_t>& to, std::uint64_t offset, FrameKind kind, std::span<const std::uint8_t> payload) {
  QUIRE_CHECK(payload.size() <= kMaxPayloadBytes, "the payload size fits into the frame header");
  ByteWriter head;
  for (unsigned shift = 0; shift < 32; shift += 8) head.byte(static_cast<std::uint8_t>(payload.size() >> shift));
  head.value(kind);
  head.fixed(frame_check(offset, kind, payload));
  to.insert(to.end(), head.bytes.begin(), head.bytes.end());
  to.insert(to.end(), payload.begin(), payload.end());
}

// Returns the magic and the frame of the header.
std::vector<std::uint8_t> journal_header_frame(const JournalHeader& header);
// Returns the payload of the last frame.
std::vector<std::uint8_t> journal_end_payload(JournalEnd end);
// Returns the payload of a checkpoint's frame.
std::vector<std::uint8_t> journal_checkpoint(const JournalCheckpoint& checkpoint);

// In a frame of calls, each call (call_bytes.h) is followed by the seams' answers in it, each with the byte kSeamAnswerBase + SeamCall. The
// call's own answer ends it.
inline constexpr std::uint8_t kSeamAnswerBase = 64, kPlanned = 128, kApplied = 129, kRefused = 130, kAnswered = 131;

}  // namespace quire
