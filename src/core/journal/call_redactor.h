#pragma once
// Rewrites calls for a journal without tokens: removes the token values, and keeps everything on which the core's decisions depend
// (left_out.h).
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/journal/left_out.h"
#include "quire/core_call.h"

namespace quire {

// Belongs to a recorder, on the core's thread. Each result is valid until the next call.
class CallRedactor {
 public:
  // `key` is used to replace block hashes.
  explicit CallRedactor(const PseudonymKey& key) : key_(key) {}
  // Rewrites all arguments except results, which need the outcome. `core` must be in the state before the call; null if unknown.
  CoreCall redacted(const Core* core, CoreCall call);
  NewRequest request(const NewRequest& given);
  SessionInput input(const SessionInput& given);
  ForkRequest child(const Core* core, RequestId parent, const ForkRequest& given);
  std::span<const Draft> drafts(std::span<const Draft> given);

  // Rewrite a result: begin_result() is called before the core takes the result, result() afterwards.
  void begin_result(const Core* core, const StepResult& given);
  StepResult result(const StepResult& given, const StepOutcome* outcome);

 private:
  std::span<const TokenId> blank(std::size_t size);
  [[nodiscard]] SampledToken* find(RequestId id, std::size_t count);

  const PseudonymKey key_;
  std::vector<TokenId> tokens_, draft_tokens_;
  std::vector<std::uint8_t> block_hashes_;
  std::vector<std::byte> embeds_;
  std::vector<Draft> drafts_;
  bool detects_repetition_ = false;  // whether a request detects repetitions, so that the positions of outputs matter
  std::vector<SampledToken> sampled_;
  std::vector<std::uint64_t> places_;  // per sampled token: its position among the request's outputs
};

}  // namespace quire
