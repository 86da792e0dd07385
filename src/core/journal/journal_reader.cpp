// Reads a journal frame by frame, and frames of calls call by call. The checksum of a frame is checked before its content is read. The
// content may still be arbitrary bytes, because the writer of a file can also write valid checksums. The reader stops at the first error;
// everything before it is valid.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/journal/answer_format.h"
#include "core/journal/call_bytes.h"
#include "core/journal/journal_format.h"
#include "quire/core_calls.h"
#include "quire/journal.h"

namespace quire {
namespace {

const JournalCheckpoint* pointer_to(const std::optional<JournalCheckpoint>& one) {
  return one.has_value() ? &*one : nullptr;
}

constexpr std::size_t kMostCheckpointHead = 2 * 8 + 3 * 10;

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::vector<std::uint8_t> journal_header_frame(const JournalHeader& header) {
  ByteWriter payload;
  payload.text(header.quire_version);
  payload.text(header.decision_profile);
  payload.value(header.start_time_s);
  payload.byte(seam_flags(header.seams));
  payload.text(text_of(encode(header.config)));
  std::vector<std::uint8_t> bytes(kJournalMagic.begin(), kJournalMagic.end());
  append_frame(bytes, bytes.size(), FrameKind::header, payload.bytes);
  return bytes;
}

std::vector<std::uint8_t> journal_end_payload(JournalEnd end) {
  ByteWriter payload;
  payload.value(end);
  return std::move(payload.bytes);
}

std::vector<std::uint8_t> journal_checkpoint(const JournalCheckpoint& checkpoint) {
  ByteWriter payload;
  payload.bytes.reserve(checkpoint.state.size() + kMostCheckpointHead);
  payload.value(checkpoint.run_start_s);
  payload.value(checkpoint.number);
  payload.value(checkpoint.progress.num_calls);
  payload.value(checkpoint.progress.num_steps);
  payload.value(checkpoint.progress.now_s);
  payload.bytes.insert(payload.bytes.end(), checkpoint.state.begin(), checkpoint.state.end());
  return std::move(payload.bytes);
}

struct JournalReader::Impl {
  explicit Impl(std::span<const std::uint8_t> given) : bytes(given) {}

  struct Frame {
    FrameKind kind{};
    std::span<const std::uint8_t> payload;
  };

  // Returns the next frame, or nullopt at the end of the bytes or if the frame is damaged; `damage` then says why.
  std::optional<Frame> next_frame() {
    QUIRE_CHECK(at <= bytes.size(), "frames that were read lie within the file");
    frame_at = at;
    const std::span<const std::uint8_t> left = bytes.subspan(at);
    if (left.empty()) return std::nullopt;
    std::uint64_t size = 0;
    if (left.size() >= kFrameHeadBytes)
      for (unsigned i = 0; i < 4; ++i) size |= std::uint64_t{left[i]} << (8 * i);
    if (left.size() < kFrameHeadBytes + size) {
      damage = fmt::format("the frame at byte {} is truncated", at);
      return std::nullopt;
    }
    ByteReader head(left.subspan(4, kFrameHeadBytes - 4));
    Frame frame;
    head.choice(frame.kind, 1, kLastFrameKind);
    frame.payload = left.subspan(kFrameHeadBytes, size);
    if (head.fixed() != frame_check(at, frame.kind, frame.payload) || head.failed()) {
      damage = fmt::format("the frame at byte {} fails its checksum", at);
      return std::nullopt;
    }
    at += kFrameHeadBytes + size;
    return frame;
  }

  Result<void> read_header() {
    const std::optional<Frame> frame = next_frame();
    if (!frame || frame->kind != FrameKind::header) return broken("has no header");
    ByteReader in(frame->payload);
    header.quire_version = in.text();
    header.decision_profile = in.text();
    in.value(header.start_time_s);
    read_seam_flags(in, header.seams);
    const std::string_view config_bytes = in.text();
    if (in.failed() || !in.at_end()) return broken("has an invalid header");
    auto config = decode_core_config({reinterpret_cast<const std::uint8_t*>(config_bytes.data()), config_bytes.size()});
    if (!config) return std::unexpected(std::move(config.error()));
    header.config = std::move(*config);
    return {};
  }
  // Reads the initial state of a file that begins in the middle of a run. Without this state no replay is possible, so every error in it is
  // reported.
  Result<void> read_start() {
    const bool begins_so = bytes.size() >= at + kFrameHeadBytes && bytes[at + 4] == static_cast<std::uint8_t>(FrameKind::checkpoint);
    if (!begins_so) return {};
    const std::optional<Frame> frame = next_frame();
    if (frame) start = read_checkpoint(frame->payload);
    return start ? Result<void>() : broken("has no initial state of the core");
  }
  static std::optional<JournalCheckpoint> read_checkpoint(std::span<const std::uint8_t> payload) {
    JournalCheckpoint read;
    ByteReader in(payload);
    in.value(read.run_start_s);
    in.value(read.number);
    in.value(read.progress.num_calls);
    in.value(read.progress.num_steps);
    in.value(read.progress.now_s);
    if (in.failed()) return std::nullopt;
    read.state = payload.subspan(in.position());
    return read;
  }
  [[nodiscard]] Result<void> broken(std::string_view what) const {
    return fail(ErrorCode::invalid_argument, "journal", fmt::format("{}{}{}", what, damage.empty() ? "" : ": ", damage),
                "use a file that quire serve --journal has written");
  }

  // Moves to the next frame of calls. Returns false if none follows.
  bool next_calls() {
    while (const std::optional<Frame> frame = next_frame()) {
      calls = ByteReader(frame->payload);
      if (frame->kind == FrameKind::calls && !frame->payload.empty()) return true;
      if (frame->kind == FrameKind::end) return take_end(), false;
      if (frame->kind == FrameKind::header) return wrong("is a second header");
      if (frame->kind != FrameKind::checkpoint) continue;
      checkpoint = read_checkpoint(frame->payload);
      calls = ByteReader({});
      if (!checkpoint) return wrong("is not a valid core state");
    }
    return false;
  }
  void take_end() {
    calls.choice(end, static_cast<std::uint8_t>(JournalEnd::stopped), static_cast<std::uint8_t>(JournalEnd::saved));
    if (calls.failed() || !calls.at_end()) wrong("is not a valid end");
    if (damage.empty() && at < bytes.size()) damage = fmt::format("{} bytes follow the end", bytes.size() - at);
    calls = ByteReader({});
    is_over = true;
  }
  bool wrong(std::string_view what) {
    damage = fmt::format("the frame at byte {} {}", frame_at, what);
    is_over = true;
    return false;
  }

  bool next_call() {
    checkpoint.reset();
    if (is_over || (calls.at_end() && !next_calls())) {
      is_over = true;
      return false;
    }
    call.read(calls);
    answers.clear();
    std::uint8_t kind = calls.byte();
    for (; !calls.failed() && kind > kSeamAnswerBase && kind < kPlanned; kind = calls.byte())
      read_answer(calls, static_cast<std::uint8_t>(kind - kSeamAnswerBase), answers.emplace_back());
    if (kind < kPlanned || kind > kAnswered) calls.fail();
    answer = {.kind = static_cast<JournalAnswer::Kind>(kind - kPlanned), .value = 0};
    if (kind == kPlanned || kind == kApplied) answer.value = calls.fixed();
    if (kind == kAnswered) answer.value = calls.number();
    return !calls.failed() || wrong(fmt::format("has no valid call from its byte {} on", calls.position()));
  }

  const std::span<const std::uint8_t> bytes;
  std::size_t at = 0, frame_at = 0;
  JournalHeader header;
  std::optional<JournalCheckpoint> start, checkpoint;
  ByteReader calls{{}};  // of the current frame
  RecordedCall call;
  std::vector<SeamAnswer> answers;
  JournalAnswer answer;
  bool is_over = false;
  JournalEnd end = JournalEnd::cut;
  std::string damage;
};

JournalReader::JournalReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JournalReader::~JournalReader() = default;

Result<std::unique_ptr<JournalReader>> JournalReader::open(std::span<const std::uint8_t> bytes) {
  auto impl = std::make_unique<Impl>(bytes);
  const std::size_t num_same = static_cast<std::size_t>(
      std::ranges::mismatch(bytes.first(std::min(bytes.size(), kJournalMagic.size())), kJournalMagic).in1 - bytes.begin());
  if (num_same + 1 == kJournalMagic.size() && bytes.size() > num_same) {
    return fail(ErrorCode::unsupported, "journal",
                fmt::format("has format version {}, but this build reads version {}", bytes[num_same], kJournalVersion),
                "replay it with the quire version that wrote it");
  }
  if (num_same < kJournalMagic.size()) return std::unexpected(impl->broken("is not a journal").error());
  impl->at = num_same;
  if (Result<void> read = impl->read_header(); !read) return std::unexpected(std::move(read.error()));
  if (Result<void> read = impl->read_start(); !read) return std::unexpected(std::move(read.error()));
  return std::unique_ptr<JournalReader>(new JournalReader(std::move(impl)));
}

const JournalHeader& JournalReader::header() const {
  return impl_->header;
}

const JournalCheckpoint* JournalReader::start() const {
  return pointer_to(impl_->start);
}

const JournalCheckpoint* JournalReader::checkpoint() const {
  return pointer_to(impl_->checkpoint);
}

bool JournalReader::next() {
  return impl_->next_call();
}

const CoreCall& JournalReader::call() const {
  return impl_->call.call();
}

const StepPlan* JournalReader::play(Core& core) const {
  return quire::play(call(), core);
}

std::vector<SeamAnswer>& JournalReader::answers() {
  return impl_->answers;
}

JournalAnswer JournalReader::answer() const {
  return impl_->answer;
}

std::size_t JournalReader::position() const {
  return impl_->at;
}

JournalEnd JournalReader::end() const {
  return impl_->end;
}

const std::string& JournalReader::damage() const {
  return impl_->damage;
}

}  // namespace quire
