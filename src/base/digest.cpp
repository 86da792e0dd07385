#include "base/digest.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace quire {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  QUIRE_CHECK(context_ != nullptr, "the digest context is allocated");
  QUIRE_CHECK(EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1, "OpenSSL provides SHA-256");
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(context_);
}

void Sha256::update(std::span<const std::byte> bytes) {
  QUIRE_CHECK(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  QUIRE_CHECK(EVP_DigestFinal_ex(context_, digest.data(), nullptr) == 1);
  // A null type restarts the context with the same algorithm.
  QUIRE_CHECK(EVP_DigestInit_ex(context_, nullptr, nullptr) == 1);
  return digest;
}

Sha256Digest Sha256::of(std::span<const std::byte> bytes) {
  Sha256 sha;
  sha.update(bytes);
  return sha.finish();
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace quire
