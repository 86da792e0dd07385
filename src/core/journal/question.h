#pragma once
// A digest in 64 bits of what a seam was asked: enough to detect that a replay differs from its record.
#include <cstdint>
#include <span>
#include <string_view>

#include "quire/base/ids.h"
#include "quire/base/request.h"
#include "quire/hash_function.h"

namespace quire {

// FNV-1a over the fields in order. Not suitable for block hashes, and not safe against deliberate collisions: a replay that went wrong
// differs in many questions.
class SeamQuestion {
 public:
  // Without tokens, only the number of added tokens counts.
  SeamQuestion() = default;
  explicit SeamQuestion(bool with_tokens) : with_tokens_(with_tokens) {}
  SeamQuestion& add(std::uint64_t value);
  SeamQuestion& add(std::string_view text);
  SeamQuestion& add(std::span<const TokenId> tokens);
  SeamQuestion& add(std::span<const RequestId> ids);
  // Adds the progress of the request.
  SeamQuestion& add(const RequestView& request);
  SeamQuestion& add(const BlockHash* parent, const HashInput& input);
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

 private:
  bool with_tokens_ = true;
  std::uint64_t digest_ = 0xcbf29ce484222325U;
};

}  // namespace quire
