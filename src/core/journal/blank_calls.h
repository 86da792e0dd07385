#pragma once
// Calls as a journal without tokens has them: what they say goes, and how the core decides by it stays (left_out.h).
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/journal/left_out.h"
#include "quire/core.h"

namespace quire {

// Belongs to a recorder, on the core's thread. What it gives is valid until it is asked for the next.
class BlankCalls {
 public:
  // Names of blocks are under this key.
  explicit BlankCalls(const NameKey& names) : names_(names) {}
  NewRequest request(const NewRequest& given);
  SessionInput input(const SessionInput& given);
  // `core` as it is before the call; null: nobody knows.
  ForkRequest child(const Core* core, RequestId parent, const ForkRequest& given);
  std::span<const Draft> drafts(std::span<const Draft> given);

  // Before the core takes it, and thereafter.
  void begin_result(const Core* core, const StepResult& given);
  StepResult result(const StepResult& given, const StepOutcome* outcome);

 private:
  std::span<const TokenId> blank(std::size_t size);
  [[nodiscard]] SampledToken* find(RequestId id, std::size_t count);

  const NameKey names_;
  std::vector<TokenId> tokens_, draft_tokens_;
  std::vector<std::uint8_t> block_hashes_;
  std::vector<std::byte> embeds_;
  std::vector<Draft> drafts_;
  bool looks_for_repetition_ = false;  // a request did, so the places of outputs count
  std::vector<SampledToken> sampled_;
  std::vector<std::uint64_t> places_;  // of each, among its request's outputs
};

}  // namespace quire
