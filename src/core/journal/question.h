#pragma once
// What a seam was asked, in 64 bits: enough to tell that a replay has left its record.
#include <cstdint>
#include <span>
#include <string_view>

#include "quire/base/ids.h"
#include "quire/base/request.h"
#include "quire/hash_function.h"

namespace quire {

// FNV-1a over the fields in order.
// Not for names of blocks, and not against anybody who looks for collisions: a replay that has gone astray differs in many questions.
class Question {
 public:
  // Without tokens: of those that are added, how many there are.
  Question() = default;
  explicit Question(bool with_tokens) : with_tokens_(with_tokens) {}
  Question& add(std::uint64_t value);
  Question& add(std::string_view text);
  Question& add(std::span<const TokenId> tokens);
  Question& add(std::span<const RequestId> ids);
  // How far the request is.
  Question& add(const RequestView& request);
  Question& add(const BlockHash* parent, const HashInput& input);
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

 private:
  bool with_tokens_ = true;
  std::uint64_t digest_ = 0xcbf29ce484222325U;
};

}  // namespace quire
