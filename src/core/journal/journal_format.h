#pragma once
// Byte format of a journal (docs/journal.md): kJournalMagic, then frames. Each frame is self-contained and has a checksum. The first frame
// is the header, and no frame follows a frame of kind `end`. If a field is added to a frame, increase kJournalVersion.
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

inline constexpr std::uint8_t kJournalVersion = 6;
inline constexpr std::array<std::uint8_t, 8> kJournalMagic = {'q', 'u', 'i', 'r', 'e', 'q', 'j', kJournalVersion};

// A frame `checkpoint` contains the state of the core before the next call. Directly after the header, it is the state with which the file
// begins. Elsewhere a reader may skip it or compare it.
enum class FrameKind : std::uint8_t { header = 1, calls, end, checkpoint };
inline constexpr std::uint8_t kLastFrameKind = 4;

// Bytes before a frame's payload: size, kind and checksum. Numbers are little-endian.
inline constexpr std::size_t kFrameHeadBytes = 4 + 1 + 8;

// Returns the checksum of a frame at this offset of its file. A frame that was moved to another offset fails the check.
inline std::uint64_t frame_check(std::uint64_t offset, FrameKind kind, std::span<const std::uint8_t> payload) {
  return WordHasher().add(offset).add(static_cast<std::uint64_t>(kind)).bytes(payload).digest();
}

// The largest payload size that a frame's head can represent.
inline constexpr std::uint64_t kMaxPayloadBytes = 0xffffffff;

// Appends a frame, which will be at byte `offset` of the file. `payload` must have at most kMaxPayloadBytes.
inline void append_frame(std::vector<std::uint8_t>& to, std::uint64_t offset, FrameKind kind, std::span<const std::uint8_t> payload) {
  QUIRE_CHECK(payload.size() <= kMaxPayloadBytes, "the payload size fits into the frame header");
  ByteWriter head;
  for (unsigned shift = 0; shift < 32; shift += 8) head.byte(static_cast<std::uint8_t>(payload.size() >> shift));
  head.value(kind);
  head.fixed(frame_check(offset, kind, payload));
  to.insert(to.end(), head.bytes.begin(), head.bytes.end());
  to.insert(to.end(), payload.begin(), payload.end());
}

// Returns the magic number and the header frame.
std::vector<std::uint8_t> journal_header_frame(const JournalHeader& header);
// Returns the payload of the `end` frame.
std::vector<std::uint8_t> journal_end_payload(JournalEnd end);
// Returns the payload of a `checkpoint` frame.
std::vector<std::uint8_t> journal_checkpoint(const JournalCheckpoint& checkpoint);

// In a frame of calls, each call (call_bytes.h) is followed by the answers of the seams during the call, each with the byte kSeamAnswerBase
// + SeamCall. The answer of the call itself comes last.
inline constexpr std::uint8_t kSeamAnswerBase = 64, kPlanned = 128, kApplied = 129, kRefused = 130, kAnswered = 131;

}  // namespace quire
