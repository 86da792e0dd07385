#include "base/keyed_mac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <array>

#include "base/check.h"

namespace quire {
namespace {

EVP_MAC_CTX* make_hmac_context() {
  EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  QUIRE_CHECK(mac != nullptr, "OpenSSL provides HMAC");
  EVP_MAC_CTX* const context = EVP_MAC_CTX_new(mac);
  EVP_MAC_free(mac);
  return context;
}

// Returns the key for OpenSSL, which treats a null pointer as "use the previous key". A key of one zero byte gives the same MAC as an empty
// key.
std::vector<std::byte> hmac_key_of(std::span<const std::byte> key) {
  return key.empty() ? std::vector<std::byte>(1) : std::vector<std::byte>(key.begin(), key.end());
}

}  // namespace

KeyedMac::KeyedMac(std::span<const std::byte> key) : key_(hmac_key_of(key)), context_(make_hmac_context()) {
  QUIRE_CHECK(context_ != nullptr, "the MAC context is allocated");
  begin();
}

KeyedMac::~KeyedMac() {
  EVP_MAC_CTX_free(context_);
}

void KeyedMac::begin() {
  std::array<char, 7> digest = {'S', 'H', 'A', '2', '5', '6', '\0'};
  const std::array parameters = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), 0), OSSL_PARAM_construct_end()};
  QUIRE_CHECK(EVP_MAC_init(context_, reinterpret_cast<const unsigned char*>(key_.data()), key_.size(), parameters.data()) == 1,
              "OpenSSL provides HMAC-SHA-256");
}

void KeyedMac::update(std::span<const std::byte> bytes) {
  QUIRE_CHECK(EVP_MAC_update(context_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()) == 1);
}

Sha256Digest KeyedMac::finish() {
  Sha256Digest mac{};
  std::size_t bytes = 0;
  QUIRE_CHECK(EVP_MAC_final(context_, mac.data(), &bytes, mac.size()) == 1 && bytes == mac.size());
  begin();
  return mac;
}

bool KeyedMac::are_equal(std::span<const std::byte> mac, std::span<const std::byte> other) {
  return mac.size() == other.size() && CRYPTO_memcmp(mac.data(), other.data(), mac.size()) == 0;
}

}  // namespace quire
