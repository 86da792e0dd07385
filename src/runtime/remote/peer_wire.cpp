// Encodes and decodes frames. Used by the threads of peer_server.h, peer_fetcher.h and peer_cache.h, each with a separate `PeerFrameCodec`.
// Lengths are checked before memory is allocated or read: a payload length above the limit ends the connection.
#include "runtime/remote/peer_wire.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::string_view kPeerMagic = "quirepkv";

template <class Number>
void put_number(std::byte* at, Number value) {
  for (std::size_t i = 0; i < sizeof value; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

template <class Number>
Number get_number(const std::byte* at) {
  Number value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) value = static_cast<Number>(value | static_cast<Number>(at[i]) << (8 * i));
  return value;
}

// Appends one frame to a buffer.
class FrameWriter {
 public:
  FrameWriter(std::vector<std::byte>& out, PeerKind kind) : out_(out), at_(out.size()) {
    number(std::uint32_t{0});
    number(static_cast<std::uint8_t>(kind));
  }
  void bytes(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  template <class Number>
  void number(Number value) {
    out_.resize(out_.size() + sizeof value);
    put_number(out_.data() + out_.size() - sizeof value, value);
  }
  void text(std::string_view text) {
    QUIRE_CHECK(text.size() <= kMaxPeerIdBytes, "a text has at most kMaxPeerIdBytes bytes");
    number(static_cast<std::uint8_t>(text.size()));
    bytes(std::as_bytes(std::span(text)));
  }
  // Writes the frame's length. `later`: payload bytes that the caller appends afterwards.
  void finish(std::size_t later = 0) {
    put_number(out_.data() + at_, static_cast<std::uint32_t>(out_.size() - at_ - kPeerHeadBytes + later));
  }
  [[nodiscard]] std::size_t payload_at() const { return at_ + kPeerHeadBytes; }

 private:
  std::vector<std::byte>& out_;
  const std::size_t at_;
};

// Parses a payload. A read past the end of the payload sets is_bad_.
class PayloadReader {
 public:
  explicit PayloadReader(std::span<const std::byte> payload) : left_(payload) {}
  std::span<const std::byte> bytes(std::size_t count) {
    if (left_.size() < count) is_bad_ = true;
    if (is_bad_) return {};
    const std::span<const std::byte> taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }
  template <class Number>
  Number number() {
    const std::span<const std::byte> taken = bytes(sizeof(Number));
    return taken.empty() ? Number{0} : get_number<Number>(taken.data());
  }
  std::string text() {
    const auto length = number<std::uint8_t>();
    if (length > kMaxPeerIdBytes) is_bad_ = true;
    const std::span<const std::byte> taken = bytes(length);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  template <std::size_t kBytes>
  void fill(std::span<std::byte, kBytes> into) {
    std::ranges::copy(bytes(kBytes), into.begin());
  }
  // Returns whether all fields were valid and nothing is left.
  [[nodiscard]] bool is_good() const { return !is_bad_ && left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool is_bad_ = false;
};

}  // namespace

std::string_view peer_close_reason_name(PeerCloseReason reason) {
  switch (reason) {
    case PeerCloseReason::served:
      return "served";
    case PeerCloseReason::other_version:
      return "it uses another protocol version";
    case PeerCloseReason::other_model:
      return "its model, KV layout or arithmetic differs";
    case PeerCloseReason::not_verified:
      return "it has another key";
    case PeerCloseReason::unknown_request:
      return "it holds no blocks of that request";
    case PeerCloseReason::busy:
      return "it is busy";
    case PeerCloseReason::no_block_sharing:
      return "it shares no blocks";
  }
  return "?";
}

std::span<std::byte> PeerFrameParser::room() {
  std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), bytes_.begin() + static_cast<std::ptrdiff_t>(end_), bytes_.begin());
  end_ -= begin_;
  begin_ = 0;
  return std::span(bytes_).subspan(end_);
}

std::optional<PeerFrame> PeerFrameParser::next() {
  if (is_broken_ || end_ - begin_ < kPeerHeadBytes) return std::nullopt;
  const std::size_t length = get_number<std::uint32_t>(&bytes_[begin_]);
  const auto kind = static_cast<std::uint8_t>(bytes_[begin_ + 4]);
  is_broken_ = length > bytes_.size() - kPeerHeadBytes || kind < static_cast<std::uint8_t>(PeerKind::hello) ||
               kind > static_cast<std::uint8_t>(PeerKind::gone);
  if (is_broken_ || end_ - begin_ < kPeerHeadBytes + length) return std::nullopt;
  const PeerFrame frame{.kind = static_cast<PeerKind>(kind), .payload = std::span(bytes_).subspan(begin_ + kPeerHeadBytes, length)};
  begin_ += kPeerHeadBytes + length;
  return frame;
}

Sha256Digest PeerFrameCodec::mac_of(PeerKind kind, const PeerSession& session, const OffloadKey* name, std::span<const std::byte> payload) {
  std::array<std::byte, 7> head{};
  head[0] = static_cast<std::byte>(kind);
  put_number(&head[1], kPeerVersion);
  put_number(&head[3], name == nullptr ? 0 : name->group);
  mac_.update(head);
  mac_.update(std::as_bytes(std::span(session.fingerprint)));
  mac_.update(session.consumer);
  mac_.update(session.producer);
  if (name != nullptr) mac_.update(std::as_bytes(std::span(name->hash)));
  mac_.update(payload);
  return mac_.finish();
}

// Appends the MAC. The frame's length field already includes the MAC.
void PeerFrameCodec::seal(std::vector<std::byte>& out, std::size_t payload_at, PeerKind kind, const PeerSession& session,
                          const OffloadKey* name) {
  const Sha256Digest mac = mac_of(kind, session, name, std::span(out).subspan(payload_at));
  const auto bytes = std::as_bytes(std::span(mac));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

std::optional<std::span<std::byte>> PeerFrameCodec::open(const PeerFrame& frame, const PeerSession& session, const OffloadKey* name) {
  if (frame.payload.size() < kPeerMacBytes) return std::nullopt;
  const std::span<std::byte> said = frame.payload.first(frame.payload.size() - kPeerMacBytes);
  const Sha256Digest mac = mac_of(frame.kind, session, name, said);
  if (!KeyedMac::are_equal(std::as_bytes(std::span(mac)), frame.payload.last(kPeerMacBytes))) return std::nullopt;
  return said;
}

void PeerFrameCodec::add_hello(std::vector<std::byte>& out, const PeerHello& hello) {
  FrameWriter writer(out, PeerKind::hello);
  writer.bytes(std::as_bytes(std::span(kPeerMagic)));
  writer.number(hello.version);
  writer.bytes(std::as_bytes(std::span(hello.fingerprint)));
  writer.bytes(hello.nonce);
  writer.finish();
}

std::optional<PeerHello> PeerFrameCodec::read_hello(const PeerFrame& frame) {
  if (frame.kind != PeerKind::hello) return std::nullopt;
  PayloadReader reader(frame.payload);
  if (!std::ranges::equal(reader.bytes(kPeerMagic.size()), std::as_bytes(std::span(kPeerMagic)))) return std::nullopt;
  PeerHello hello;
  hello.version = reader.number<std::uint16_t>();
  // The fields of another version may differ, so they are not parsed.
  if (hello.version != kPeerVersion) return hello;
  reader.fill(std::as_writable_bytes(std::span(hello.fingerprint)));
  reader.fill(std::span(hello.nonce));
  return reader.is_good() ? std::optional(hello) : std::nullopt;
}

void PeerFrameCodec::add_bye(std::vector<std::byte>& out, PeerCloseReason reason) {
  FrameWriter writer(out, PeerKind::bye);
  writer.number(static_cast<std::uint8_t>(reason));
  writer.finish();
}

std::optional<PeerCloseReason> PeerFrameCodec::read_bye(const PeerFrame& frame) {
  if (frame.kind != PeerKind::bye) return std::nullopt;
  PayloadReader reader(frame.payload);
  const auto end = reader.number<std::uint8_t>();
  if (!reader.is_good() || end > static_cast<std::uint8_t>(PeerCloseReason::no_block_sharing)) return std::nullopt;
  return static_cast<PeerCloseReason>(end);
}

void PeerFrameCodec::add_welcome(std::vector<std::byte>& out, const PeerSession& session, std::string_view engine_id) {
  FrameWriter writer(out, PeerKind::welcome);
  writer.bytes(session.producer);
  writer.text(engine_id);
  writer.finish(kPeerMacBytes);
  seal(out, writer.payload_at(), PeerKind::welcome, session, nullptr);
}

// The MAC covers the producer's nonce, which the payload itself contains.
std::optional<PeerWelcome> PeerFrameCodec::read_welcome(const PeerFrame& frame, PeerSession session) {
  if (frame.kind != PeerKind::welcome || frame.payload.size() < sizeof(PeerNonce)) return std::nullopt;
  std::ranges::copy(frame.payload.first(sizeof(PeerNonce)), session.producer.begin());
  const auto said = open(frame, session, nullptr);
  if (!said) return std::nullopt;
  PayloadReader reader(*said);
  PeerWelcome welcome;
  reader.fill(std::span(welcome.nonce));
  welcome.engine_id = reader.text();
  return reader.is_good() ? std::optional(std::move(welcome)) : std::nullopt;
}

void PeerFrameCodec::add_request(std::vector<std::byte>& out, const PeerSession& session, PeerKind kind, const PeerRequest& request) {
  FrameWriter writer(out, kind);
  writer.text(request.request_id);
  writer.number(request.first_block);
  writer.number(request.num_blocks);
  writer.finish(kPeerMacBytes);
  seal(out, writer.payload_at(), kind, session, nullptr);
}

std::optional<PeerRequest> PeerFrameCodec::read_request(const PeerFrame& frame, const PeerSession& session) {
  const bool is_request = frame.kind == PeerKind::read || frame.kind == PeerKind::done || frame.kind == PeerKind::renew;
  const auto said = is_request ? open(frame, session, nullptr) : std::nullopt;
  if (!said) return std::nullopt;
  PayloadReader reader(*said);
  PeerRequest request;
  request.request_id = reader.text();
  request.first_block = reader.number<std::uint32_t>();
  request.num_blocks = reader.number<std::uint32_t>();
  return reader.is_good() ? std::optional(std::move(request)) : std::nullopt;
}

void PeerFrameCodec::add_keys(std::vector<std::byte>& out, const PeerSession& session, PeerKind kind, std::uint32_t number,
                              std::span<const OffloadKey> names) {
  QUIRE_CHECK(!names.empty() && names.size() <= kMaxPeerKeys, "a frame has 1 to kMaxPeerKeys offload keys");
  FrameWriter writer(out, kind);
  writer.number(number);
  writer.number(static_cast<std::uint16_t>(names.size()));
  for (const OffloadKey& name : names) {
    QUIRE_CHECK(name.group <= UINT16_MAX, "a cache group number fits into 16 bits");
    writer.number(static_cast<std::uint16_t>(name.group));
    writer.bytes(std::as_bytes(std::span(name.hash)));
  }
  writer.finish(kPeerMacBytes);
  seal(out, writer.payload_at(), kind, session, nullptr);
}

// Allocates memory only for offload keys that are in the payload, not for the count that the payload claims.
std::optional<PeerKeyList> PeerFrameCodec::read_keys(const PeerFrame& frame, const PeerSession& session) {
  const bool is_names = frame.kind == PeerKind::find || frame.kind == PeerKind::take;
  const auto said = is_names ? open(frame, session, nullptr) : std::nullopt;
  if (!said) return std::nullopt;
  PayloadReader reader(*said);
  PeerKeyList names;
  names.number = reader.number<std::uint32_t>();
  const auto count = reader.number<std::uint16_t>();
  if (count == 0 || count > kMaxPeerKeys || said->size() != 6 + count * (2 + sizeof(OffloadKey::hash))) return std::nullopt;
  names.names.resize(count);
  for (OffloadKey& name : names.names) {
    name.group = reader.number<std::uint16_t>();
    reader.fill(std::as_writable_bytes(std::span(name.hash)));
  }
  return reader.is_good() ? std::optional(std::move(names)) : std::nullopt;
}

void PeerFrameCodec::add_found(std::vector<std::byte>& out, const PeerSession& session, const PeerFound& found) {
  QUIRE_CHECK(found.has.size() <= kMaxPeerKeys, "an answer has at most kMaxPeerKeys entries");
  FrameWriter writer(out, PeerKind::found);
  writer.number(found.number);
  writer.number(static_cast<std::uint16_t>(found.has.size()));
  for (std::size_t first = 0; first < found.has.size(); first += 8) {
    unsigned bits = 0;
    for (std::size_t i = first; i < std::min(first + 8, found.has.size()); ++i) bits |= (found.has[i] ? 1U : 0U) << (i - first);
    writer.number(static_cast<std::uint8_t>(bits));
  }
  writer.finish(kPeerMacBytes);
  seal(out, writer.payload_at(), PeerKind::found, session, nullptr);
}

std::optional<PeerFound> PeerFrameCodec::read_found(const PeerFrame& frame, const PeerSession& session) {
  const auto said = frame.kind == PeerKind::found ? open(frame, session, nullptr) : std::nullopt;
  if (!said) return std::nullopt;
  PayloadReader reader(*said);
  PeerFound found;
  found.number = reader.number<std::uint32_t>();
  const auto count = reader.number<std::uint16_t>();
  if (count > kMaxPeerKeys) return std::nullopt;
  found.has.resize(count);
  unsigned bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    bits = i % 8 == 0 ? reader.number<std::uint8_t>() : bits >> 1U;
    found.has[i] = (bits & 1U) != 0;
  }
  return reader.is_good() ? std::optional(std::move(found)) : std::nullopt;
}

void PeerFrameCodec::add_gone(std::vector<std::byte>& out, const PeerSession& session, std::uint32_t number) {
  FrameWriter writer(out, PeerKind::gone);
  writer.number(number);
  writer.finish(kPeerMacBytes);
  seal(out, writer.payload_at(), PeerKind::gone, session, nullptr);
}

std::optional<std::uint32_t> PeerFrameCodec::read_gone(const PeerFrame& frame, const PeerSession& session) {
  const auto said = frame.kind == PeerKind::gone ? open(frame, session, nullptr) : std::nullopt;
  if (!said) return std::nullopt;
  PayloadReader reader(*said);
  const auto number = reader.number<std::uint32_t>();
  return reader.is_good() ? std::optional(number) : std::nullopt;
}

std::span<std::byte> PeerFrameCodec::add_block(std::vector<std::byte>& out, std::uint32_t index, std::size_t block_bytes) {
  FrameWriter writer(out, PeerKind::block);
  writer.number(index);
  writer.finish(block_bytes + kPeerMacBytes);
  out.resize(out.size() + block_bytes);
  return std::span(out).last(block_bytes);
}

void PeerFrameCodec::seal_block(std::vector<std::byte>& out, const PeerSession& session, const OffloadKey& name, std::size_t block_bytes) {
  QUIRE_CHECK(out.size() >= 4 + block_bytes, "add_block() added a block of this size");
  seal(out, out.size() - 4 - block_bytes, PeerKind::block, session, &name);
}

std::optional<std::span<std::byte>> PeerFrameCodec::read_block(const PeerFrame& frame, const PeerSession& session, const OffloadKey& name,
                                                               std::uint32_t index, std::size_t block_bytes) {
  if (frame.kind != PeerKind::block || frame.payload.size() != peer_block_payload(block_bytes)) return std::nullopt;
  if (get_number<std::uint32_t>(frame.payload.data()) != index) return std::nullopt;
  const auto said = open(frame, session, &name);
  return said ? std::optional(said->subspan(4)) : std::nullopt;
}

}  // namespace quire
