#pragma once
// Protocol for fetching KV blocks from another server: frames of "length (4 bytes, little endian), kind (1), payload". Received bytes are
// not trusted. A connection begins with hello and welcome. Afterwards it serves one request of a consumer to a producer, or requests by
// offload key for as long as both sides keep the connection open (peer_cache.h):
//
//   consumer  hello    magic, version, fingerprint of the model and its layout, the consumer's nonce
//   producer  welcome  the producer's nonce, its engine id, MAC
//   consumer  read     request id, range of blocks, MAC              then per block:   producer  block   index, bytes, MAC
//   consumer  done     request id, MAC: the blocks may be freed      or renew: the blocks are still needed
//   producer  bye      outcome
//
//   consumer  find     number, offload keys, MAC                     producer  found   number, which keys are held, MAC
//   consumer  take     number, offload keys, MAC    then per block:   producer  block   next number, bytes, MAC; or gone: number, MAC
//
// A MAC is HMAC-SHA-256 with the deployment's secret over kind, version, fingerprint, both nonces and payload; a block's MAC also covers
// its block hash and cache group. A frame of another connection, from a sender without the secret, or for another model or other tokens
// therefore does not verify. With an empty secret, the MAC detects errors but does not authenticate.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/keyed_mac.h"
#include "quire/offload.h"
#include "runtime/tier/tier_table.h"

namespace quire {

inline constexpr std::uint16_t kPeerVersion = 1;
inline constexpr std::size_t kPeerHeadBytes = 5, kPeerMacBytes = sizeof(Sha256Digest);
inline constexpr std::size_t kMaxPeerIdBytes = 128;  // bytes of a request id or engine id
// Largest payload in bytes of all frames except blocks and lists of offload keys.
inline constexpr std::size_t kMaxPeerPayload = 512;
inline constexpr std::size_t kMaxPeerKeys = 128;  // offload keys in a find or take
inline constexpr std::size_t kMaxPeerKeysPayload = 6 + kMaxPeerKeys * (2 + 32) + kPeerMacBytes;
inline constexpr std::size_t peer_block_payload(std::size_t block_bytes) {
  return 4 + block_bytes + kPeerMacBytes;
}

using PeerNonce = std::array<std::byte, 16>;

enum class PeerKind : std::uint8_t { hello = 1, welcome, read, block, done, renew, bye, find, found, take, gone };

enum class PeerCloseReason : std::uint8_t {
  served,
  other_version,
  other_model,      // or another layout, dtype, block size, hash mode or arithmetic
  not_verified,     // another secret
  unknown_request,  // the producer does not know the request, or its lease is over
  busy,
  no_block_sharing  // the producer serves no blocks by offload key
};
std::string_view peer_close_reason_name(PeerCloseReason reason);

struct PeerHello {
  std::uint16_t version = kPeerVersion;
  TierFingerprint fingerprint{};
  PeerNonce nonce{};
};
struct PeerWelcome {
  PeerNonce nonce{};
  std::string engine_id;
};
// Payload of read, done or renew.
struct PeerRequest {
  std::string request_id;
  std::uint32_t first_block = 0, num_blocks = 0;  // for read
};

// Payload of find or take. In a find, the answer repeats `number`. In a take, `number` is the sequence number of the first block; each
// further block has the next number.
struct PeerKeyList {
  std::uint32_t number = 0;
  std::vector<OffloadKey> names;
};
struct PeerFound {
  std::uint32_t number = 0;
  std::vector<bool> has;  // in the order of the offload keys
};

// Values of a connection that its MACs cover.
struct PeerSession {
  TierFingerprint fingerprint{};
  PeerNonce consumer{}, producer{};
};

// View of a received frame.
struct PeerFrame {
  PeerKind kind = PeerKind::bye;
  std::span<std::byte> payload;
};

// Splits the received bytes of a connection into frames. Allocates one buffer, for a frame with the longest payload.
class PeerFrameParser {
 public:
  explicit PeerFrameParser(std::size_t max_payload) : bytes_(kPeerHeadBytes + max_payload) {}

  // Returns the free part of the buffer, for received bytes. The part is empty only while a whole frame waits for next(). Invalidates the
  // view of the last frame.
  std::span<std::byte> room();
  void filled(std::size_t num_bytes) { end_ += num_bytes; }
  // Returns the next whole frame; nullopt if more bytes are needed or the input is invalid (`is_broken()`).
  std::optional<PeerFrame> next();
  [[nodiscard]] bool is_broken() const { return is_broken_; }

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0, end_ = 0;
  bool is_broken_ = false;
};

// Writes and verifies frames. Used by one thread.
class PeerFrameCodec {
 public:
  explicit PeerFrameCodec(std::span<const std::byte> secret) : mac_(secret) {}

  // The add functions append a frame to `out`.
  static void add_hello(std::vector<std::byte>& out, const PeerHello& hello);
  static void add_bye(std::vector<std::byte>& out, PeerCloseReason reason);
  void add_welcome(std::vector<std::byte>& out, const PeerSession& session, std::string_view engine_id);
  void add_request(std::vector<std::byte>& out, const PeerSession& session, PeerKind kind, const PeerRequest& request);
  // `names` must have 1 to kMaxPeerKeys offload keys.
  void add_keys(std::vector<std::byte>& out, const PeerSession& session, PeerKind kind, std::uint32_t number,
                std::span<const OffloadKey> names);
  void add_found(std::vector<std::byte>& out, const PeerSession& session, const PeerFound& found);
  void add_gone(std::vector<std::byte>& out, const PeerSession& session, std::uint32_t number);
  // Begins the frame of a block and returns the span for its bytes. The caller fills the span and then calls seal_block(), with no other
  // call on `out` in between.
  static std::span<std::byte> add_block(std::vector<std::byte>& out, std::uint32_t index, std::size_t block_bytes);
  void seal_block(std::vector<std::byte>& out, const PeerSession& session, const OffloadKey& name, std::size_t block_bytes);

  // The read functions return nullopt if the frame has another kind, is malformed, or has a MAC that does not verify.
  static std::optional<PeerHello> read_hello(const PeerFrame& frame);
  static std::optional<PeerCloseReason> read_bye(const PeerFrame& frame);
  // `session` has all values except the producer's nonce.
  std::optional<PeerWelcome> read_welcome(const PeerFrame& frame, PeerSession session);
  std::optional<PeerRequest> read_request(const PeerFrame& frame, const PeerSession& session);
  std::optional<PeerKeyList> read_keys(const PeerFrame& frame, const PeerSession& session);
  std::optional<PeerFound> read_found(const PeerFrame& frame, const PeerSession& session);
  // Returns the block's number.
  std::optional<std::uint32_t> read_gone(const PeerFrame& frame, const PeerSession& session);
  // Returns the bytes of the block; nullopt if the frame is not a valid frame of this block.
  std::optional<std::span<std::byte>> read_block(const PeerFrame& frame, const PeerSession& session, const OffloadKey& name,
                                                 std::uint32_t index, std::size_t block_bytes);

 private:
  Sha256Digest mac_of(PeerKind kind, const PeerSession& session, const OffloadKey* name, std::span<const std::byte> payload);
  void seal(std::vector<std::byte>& out, std::size_t payload_at, PeerKind kind, const PeerSession& session, const OffloadKey* name);
  // Verifies the MAC of a frame. Returns the payload without the MAC; nullopt if the MAC does not verify.
  std::optional<std::span<std::byte>> open(const PeerFrame& frame, const PeerSession& session, const OffloadKey* name);

  KeyedMac mac_;
};

}  // namespace quire
