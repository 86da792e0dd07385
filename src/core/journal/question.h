#pragma once
// A 64-bit digest of a call to a seam. A replay compares it with the recorded digest to detect that it differs from the record.
#include <cstdint>
#include <span>
#include <string_view>

#include "quire/base/ids.h"
#include "quire/base/request.h"
#include "quire/hash_function.h"

namespace quire {

// FNV-1a over the fields in order. Not suitable as a block hash, and not secure against deliberate collisions: this is sufficient, because
// a replay that differs usually differs in many questions.
class SeamQuestion {
 public:
  // With `with_tokens` = false, only the number of added tokens counts.
  SeamQuestion() = default;
  explicit SeamQuestion(bool with_tokens) : with_tokens_(with_tokens) {}
  SeamQuestion& add(std::uint64_t value);
  SeamQuestion& add(std::string_view text);
  SeamQuestion& add(std::span<const TokenId> tokens);
  SeamQuestion& add(std::span<const RequestId> ids);
  // Adds the id and the progress of the request.
  SeamQuestion& add(const RequestView& request);
  SeamQuestion& add(const BlockHash* parent, const HashInput& input);
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

 private:
  bool with_tokens_ = true;
  std::uint64_t digest_ = 0xcbf29ce484222325U;
};

}  // namespace quire
