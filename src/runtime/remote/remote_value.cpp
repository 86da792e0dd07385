#include "runtime/remote/remote_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::string_view kMagic = "quire-kv";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kSecretPrefixBytes = 8;

using RemoteHeader = std::array<std::byte, kRemoteHeaderBytes>;

void put_u32(std::byte* at, std::uint64_t value) {
  for (unsigned i = 0; i < 4; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

RemoteHeader header_of(std::uint64_t block_bytes) {
  RemoteHeader header{};
  std::ranges::copy(std::as_bytes(std::span(kMagic)), header.begin());
  put_u32(&header[8], kVersion);
  put_u32(&header[12], block_bytes);
  return header;
}

}  // namespace

// The prefix has a MAC of the word "deployment". Values never have this MAC, so the key reveals only which deployment wrote it.
RemoteKeys::RemoteKeys(std::span<const std::byte> secret, const TierFingerprint& fingerprint) {
  KeyedMac mac(secret);
  mac.update(std::as_bytes(std::span(std::string_view("deployment"))));
  const Sha256Digest shown = mac.finish();
  prefix_ = fmt::format("quire:{}:{}:", to_hex(std::span(shown).first(kSecretPrefixBytes)), to_hex(fingerprint));
}

std::string RemoteKeys::key_of(const OffloadKey& name) const {
  return fmt::format("{}{}:{}", prefix_, to_hex(name.hash), name.group);
}

// Returns the MAC of a value. Covers the key's length, so that bytes cannot move between key and header.
Sha256Digest RemoteValueCodec::mac_of(std::string_view key, std::span<const std::byte> sealed) {
  std::array<std::byte, 4> length{};
  put_u32(length.data(), key.size());
  mac_.update(length);
  mac_.update(std::as_bytes(std::span(key)));
  mac_.update(sealed);
  return mac_.finish();
}

void RemoteValueCodec::seal(std::string_view key, std::span<std::byte> value) {
  QUIRE_CHECK(value.size() > remote_value_bytes(0), "a value has room for a block");
  std::ranges::copy(header_of(value.size() - remote_value_bytes(0)), value.begin());
  const Sha256Digest mac = mac_of(key, value.first(value.size() - kRemoteMacBytes));
  std::ranges::copy(std::as_bytes(std::span(mac)), value.last(kRemoteMacBytes).begin());
}

std::optional<std::span<std::byte>> RemoteValueCodec::open(std::string_view key, std::span<std::byte> value, std::uint64_t block_bytes) {
  if (value.size() != remote_value_bytes(block_bytes)) return std::nullopt;
  if (!std::ranges::equal(value.first(kRemoteHeaderBytes), header_of(block_bytes))) return std::nullopt;
  const Sha256Digest mac = mac_of(key, value.first(value.size() - kRemoteMacBytes));
  if (!KeyedMac::are_equal(std::as_bytes(std::span(mac)), value.last(kRemoteMacBytes))) return std::nullopt;
  return value.subspan(kRemoteHeaderBytes, block_bytes);
}

}  // namespace quire
