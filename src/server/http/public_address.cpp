#include "server/http/public_address.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace quire {

namespace ip = boost::asio::ip;

namespace {

struct Network {
  std::array<std::uint8_t, 4> begin;
  unsigned bits;
};

constexpr unsigned kAllBits = 32;
constexpr std::array kNotPublic = {
    Network{{0, 0, 0, 0}, 8},      Network{{10, 0, 0, 0}, 8},     Network{{100, 64, 0, 0}, 10}, Network{{127, 0, 0, 0}, 8},
    Network{{169, 254, 0, 0}, 16}, Network{{172, 16, 0, 0}, 12},  Network{{192, 0, 0, 0}, 24},  Network{{192, 0, 2, 0}, 24},
    Network{{192, 88, 99, 0}, 24}, Network{{192, 168, 0, 0}, 16}, Network{{198, 18, 0, 0}, 15}, Network{{198, 51, 100, 0}, 24},
    Network{{203, 0, 113, 0}, 24}, Network{{224, 0, 0, 0}, 4},    Network{{240, 0, 0, 0}, 4},
};

bool is_public(const ip::address_v4& address) {
  return std::ranges::none_of(kNotPublic, [&](const Network& network) {
    const std::uint32_t differs = address.to_uint() ^ ip::address_v4(network.begin).to_uint();
    return differs >> (kAllBits - network.bits) == 0;
  });
}

using Bytes6 = ip::address_v6::bytes_type;

bool begins(const Bytes6& bytes, std::initializer_list<std::uint8_t> with) {
  return std::equal(with.begin(), with.end(), bytes.begin());
}

ip::address_v4 inner(const Bytes6& bytes, std::size_t at) {
  return ip::address_v4({bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]});
}

bool is_public(const ip::address_v6& address) {
  const Bytes6 bytes = address.to_bytes();
  if (address.is_v4_mapped()) return is_public(inner(bytes, 12));
  // NAT64 and 6to4 addresses are public if the IPv4 address that they contain is public.
  if (begins(bytes, {0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0})) return is_public(inner(bytes, 12));
  if (begins(bytes, {0x20, 0x02})) return is_public(inner(bytes, 2));
  // All other addresses are public if they are allocated unicast addresses (2000::/3) and are neither in 2001::/23 (Teredo and others) nor
  // documentation addresses.
  constexpr std::uint8_t kUnicast = 0x20, kUnicastMask = 0xe0;
  if ((bytes[0] & kUnicastMask) != kUnicast) return false;
  if (begins(bytes, {0x20, 0x01}) && bytes[2] < 2) return false;
  return !begins(bytes, {0x20, 0x01, 0x0d, 0xb8}) && !begins(bytes, {0x3f, 0xff});
}

}  // namespace

bool is_public_address(const ip::address& address) {
  return address.is_v4() ? is_public(address.to_v4()) : is_public(address.to_v6());
}

}  // namespace quire
