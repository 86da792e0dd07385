// Implements the hash functions and computes the hashes of a request's blocks, each from the hash of the block before it. The core makes
// one hash function and calls this function on its thread when a request is added and when outputs fill a block. The engine uses a separate
// object on the submitting thread, because a function reuses its buffers.
#include "core/kv/hash/hash_function.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/xxhash.h"
#include "core/kv/hash/hash_encode.h"

namespace quire {
namespace {

constexpr std::array<std::pair<HashAlgorithm, std::string_view>, 5> kNames{{{HashAlgorithm::sha256, "sha256"},
                                                                            {HashAlgorithm::sha256_cbor, "sha256_cbor"},
                                                                            {HashAlgorithm::xxhash, "xxhash"},
                                                                            {HashAlgorithm::xxhash_cbor, "xxhash_cbor"},
                                                                            {HashAlgorithm::canonical, "canonical"}}};

class PlainHash final : public HashFunction {
 public:
  explicit PlainHash(const HashOptions& options) : algorithm_(options.algorithm), extra_keys_(options.extra_keys) {
    if (options.root.empty()) {
      encode(std::string_view(options.seed));
      root_ = {digest(), hash_size(algorithm_)};
    } else {
      QUIRE_CHECK(options.root.size() <= sizeof(BlockHash::bytes), "the root hash has at most 32 bytes");
      root_.size = options.root.size();
      std::ranges::copy(options.root, root_.hash.bytes.begin());
    }
  }

  BlockHash hash(const BlockHash* parent, const HashInput& input) override {
    if (extra_keys_ != nullptr && input.num_extra_keys() > 0) return extra_keys_->hash(parent, input);
    encode(parent == nullptr ? root_.view() : std::span(parent->bytes).first(hash_size(algorithm_)), input);
    return digest();
  }

 private:
  struct Root {
    BlockHash hash;
    std::size_t size = 0;
    [[nodiscard]] std::span<const std::uint8_t> view() const { return std::span(hash.bytes).first(size); }
  };

  template <class... Content>
  void encode(const Content&... content) {
    switch (algorithm_) {
      case HashAlgorithm::sha256:
      case HashAlgorithm::xxhash:
        encode_pickle(content..., bytes_);
        break;
      case HashAlgorithm::sha256_cbor:
      case HashAlgorithm::xxhash_cbor:
        encode_cbor(content..., bytes_);
        break;
      case HashAlgorithm::canonical:
        encode_canonical(content..., bytes_);
        break;
    }
  }

  BlockHash digest() {
    const auto bytes = std::as_bytes(bytes_.view());
    BlockHash hash;
    if (hash_size(algorithm_) == sizeof(Xxh128Digest)) {
      std::ranges::copy(xxh3_128(bytes), hash.bytes.begin());
    } else {
      sha_.update(bytes);
      hash.bytes = sha_.finish();
    }
    return hash;
  }

  HashAlgorithm algorithm_;
  HashFunction* extra_keys_;
  Sha256 sha_;
  HashBytes bytes_;
  Root root_;
};

}  // namespace

Result<HashAlgorithm> parse_hash_algorithm(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name, &std::pair<HashAlgorithm, std::string_view>::second);
  if (found == kNames.end()) {
    return fail(ErrorCode::invalid_argument, "prefix_caching_hash_algo", fmt::format("unknown hash function '{}'", name),
                "use sha256, sha256_cbor, xxhash, xxhash_cbor or canonical");
  }
  return found->first;
}

std::string_view to_string(HashAlgorithm algorithm) {
  const auto* found = std::ranges::find(kNames, algorithm, &std::pair<HashAlgorithm, std::string_view>::first);
  QUIRE_CHECK(found != kNames.end(), "each algorithm has a name");
  return found->second;
}

Result<std::unique_ptr<HashFunction>> make_hash_function(const HashOptions& options) {
  if (hash_size(options.algorithm) == sizeof(Xxh128Digest) && !xxhash_available()) {
    return fail(ErrorCode::unsupported, "prefix_caching_hash_algo",
                fmt::format("this build has no xxHash, which '{}' needs", to_string(options.algorithm)),
                "install libxxhash-dev and build again, or use sha256_cbor");
  }
  if (options.root.size() > sizeof(BlockHash))
    return fail(ErrorCode::invalid_argument, "root_hash", fmt::format("must have at most 32 bytes, got {}", options.root.size()),
                "use 1 to 32 bytes");
  return std::make_unique<PlainHash>(options);
}

void hash_full_blocks(HashFunction& function, const RequestContent& content, std::uint32_t block_size, std::vector<BlockHash>& hashes) {
  QUIRE_CHECK(block_size > 0, "the block size is positive");
  HashInputs inputs(content, block_size, hashes.size());
  while (const std::optional<HashInput> input = inputs.next())
    hashes.push_back(function.hash(hashes.empty() ? nullptr : &hashes.back(), *input));
  QUIRE_CHECK(hashes.size() >= content.tokens.size() / block_size, "each full block has a block hash");
}

}  // namespace quire
