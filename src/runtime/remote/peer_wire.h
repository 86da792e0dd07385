#pragma once
// What two servers say to each other while one takes KV blocks from the other: frames of "length (4, little endian), kind (1), payload", of
// which the other side may have sent anything. A connection begins with hello and welcome, and then serves one request (a consumer, a
// producer), or gives blocks by their names for as long as both like (peer_cache.h):
//
//   consumer  hello    magic, version, fingerprint of the model and its layout, a number drawn for this connection
//   producer  welcome  a number of its own, its engine's name, MAC
//   consumer  read     the request, which of its blocks, MAC          then for each:   producer  block   its index, its bytes, MAC
//   consumer  done     the request, MAC: its blocks may go            or renew: they are still wanted
//   producer  bye      how it went
//
//   consumer  find     a number, names, MAC                           producer  found   the number, which of them it holds, MAC
//   consumer  take     a number, names, MAC          then for each:   producer  block   the number, one more each, as above; or gone: MAC
//
// A MAC is HMAC-SHA-256 with the deployment's key over kind, version, fingerprint, both numbers and payload; a block's over its name and
// cache group besides. So what was said on another connection, by a stranger, of another model or of other tokens is not taken for true.
// Without a key the same check finds errors, and keeps nobody out.
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
inline constexpr std::size_t kMostPeerName = 128;  // bytes of a request's or an engine's name
// Of all payloads but a block's and a list of names.
inline constexpr std::size_t kMostPeerPayload = 512;
inline constexpr std::size_t kMostPeerNames = 128;  // in a find or take
inline constexpr std::size_t kMostPeerNamesPayload = 6 + kMostPeerNames * (2 + 32) + kPeerMacBytes;
inline constexpr std::size_t peer_block_payload(std::size_t block_bytes) {
  return 4 + block_bytes + kPeerMacBytes;
}

using PeerNonce = std::array<std::byte, 16>;

enum class PeerKind : std::uint8_t { hello = 1, welcome, read, block, done, renew, bye, find, found, take, gone };

enum class PeerEnd : std::uint8_t {
  served,
  other_version,
  other_model,      // or another layout, dtype, block size, naming of blocks, arithmetic
  not_verified,     // another key
  unknown_request,  // it never was here, or its time is over
  busy,
  shares_nothing  // by name
};
std::string_view peer_end_name(PeerEnd end);

struct PeerHello {
  std::uint16_t version = kPeerVersion;
  TierFingerprint fingerprint{};
  PeerNonce nonce{};
};
struct PeerWelcome {
  PeerNonce nonce{};
  std::string engine_id;
};
// read, done or renew
struct PeerAsk {
  std::string request_id;
  std::uint32_t first_block = 0, num_blocks = 0;  // read
};

// find or take. The number says which of them an answer is for; a take's, that of its first block: it grows with each of them.
struct PeerNames {
  std::uint32_t number = 0;
  std::vector<OffloadKey> names;
};
struct PeerFound {
  std::uint32_t number = 0;
  std::vector<bool> has;  // by name
};

// What the MACs of a connection are over.
struct PeerSession {
  TierFingerprint fingerprint{};
  PeerNonce consumer{}, producer{};
};

// A view into what was received.
struct PeerFrame {
  PeerKind kind = PeerKind::bye;
  std::span<std::byte> payload;
};

// What comes in on a connection, in pieces, as frames. It takes memory for one frame of the longest payload, once.
class PeerFrames {
 public:
  explicit PeerFrames(std::size_t most_payload) : bytes_(kPeerHeadBytes + most_payload) {}

  // Where more is to be read to; empty where a whole frame waits to be taken. Ends the view of the last one.
  std::span<std::byte> room();
  void filled(std::size_t num_bytes) { end_ += num_bytes; }
  // The next one that is whole. nullopt: more must come, or nothing that comes can be understood.
  std::optional<PeerFrame> next();
  [[nodiscard]] bool is_broken() const { return is_broken_; }

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0, end_ = 0;
  bool is_broken_ = false;
};

// One thread.
class PeerSeal {
 public:
  explicit PeerSeal(std::span<const std::byte> secret) : mac_(secret) {}

  // Frames, appended to `out`.
  static void add_hello(std::vector<std::byte>& out, const PeerHello& hello);
  static void add_bye(std::vector<std::byte>& out, PeerEnd end);
  void add_welcome(std::vector<std::byte>& out, const PeerSession& session, std::string_view engine_id);
  void add_ask(std::vector<std::byte>& out, const PeerSession& session, PeerKind kind, const PeerAsk& ask);
  // kMostPeerNames at most.
  void add_names(std::vector<std::byte>& out, const PeerSession& session, PeerKind kind, std::uint32_t number,
                 std::span<const OffloadKey> names);
  void add_found(std::vector<std::byte>& out, const PeerSession& session, const PeerFound& found);
  void add_gone(std::vector<std::byte>& out, const PeerSession& session, std::uint32_t number);
  // Of a block that is yet to be written: where its bytes belong. seal_block() is to follow, with nothing appended in between.
  static std::span<std::byte> add_block(std::vector<std::byte>& out, std::uint32_t index, std::size_t block_bytes);
  void seal_block(std::vector<std::byte>& out, const PeerSession& session, const OffloadKey& name, std::size_t block_bytes);

  // nullopt: it is none, or nobody with the key has said it here.
  static std::optional<PeerHello> read_hello(const PeerFrame& frame);
  static std::optional<PeerEnd> read_bye(const PeerFrame& frame);
  // `session` has all but the producer's number.
  std::optional<PeerWelcome> read_welcome(const PeerFrame& frame, PeerSession session);
  std::optional<PeerAsk> read_ask(const PeerFrame& frame, const PeerSession& session);
  std::optional<PeerNames> read_names(const PeerFrame& frame, const PeerSession& session);
  std::optional<PeerFound> read_found(const PeerFrame& frame, const PeerSession& session);
  // The block's number.
  std::optional<std::uint32_t> read_gone(const PeerFrame& frame, const PeerSession& session);
  // The bytes of the block.
  std::optional<std::span<std::byte>> read_block(const PeerFrame& frame, const PeerSession& session, const OffloadKey& name,
                                                 std::uint32_t index, std::size_t block_bytes);

 private:
  Sha256Digest mac_of(PeerKind kind, const PeerSession& session, const OffloadKey* name, std::span<const std::byte> payload);
  void seal(std::vector<std::byte>& out, std::size_t payload_at, PeerKind kind, const PeerSession& session, const OffloadKey* name);
  // The payload without its MAC.
  std::optional<std::span<std::byte>> open(const PeerFrame& frame, const PeerSession& session, const OffloadKey* name);

  KeyedMac mac_;
};

}  // namespace quire
