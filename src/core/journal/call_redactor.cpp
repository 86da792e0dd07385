#include "core/journal/call_redactor.h"

#include <algorithm>
#include <variant>

#include "base/check.h"
#include "core/journal/pseudonyms.h"

namespace quire {

std::span<const TokenId> CallRedactor::blank(std::size_t size) {
  tokens_.assign(size, left_out());
  return tokens_;
}

CoreCall CallRedactor::redacted(const Core* core, CoreCall call) {
  std::visit(
      [&](auto& one) {
        if constexpr (requires { one.request; }) one.request = request(one.request);
        if constexpr (requires { one.session_input; })
          if (one.session_input) one.session_input = input(*one.session_input);
        if constexpr (requires { one.child; }) one.child = child(core, one.parent, one.child);
        if constexpr (requires { one.drafts; }) one.drafts = drafts(one.drafts);
      },
      call);
  return call;
}

NewRequest CallRedactor::request(const NewRequest& given) {
  detects_repetition_ |= looks_for_repetition(given.repetition);
  NewRequest request = given;
  request.prompt = blank(given.prompt.size());
  request.repetition = left_out(given.repetition);
  embeds_.assign(given.prompt_embeds.size(), std::byte{0});
  request.prompt_embeds = embeds_;
  block_hashes_ = pseudonyms(key_, given.block_hashes);
  request.block_hashes = block_hashes_;
  return request;
}

SessionInput CallRedactor::input(const SessionInput& given) {
  detects_repetition_ |= looks_for_repetition(given.repetition);
  SessionInput input = given;
  input.tokens = blank(given.tokens.size());
  input.repetition = left_out(given.repetition);
  return input;
}

ForkRequest CallRedactor::child(const Core* core, RequestId parent, const ForkRequest& given) {
  ForkRequest child = given;
  const auto view = core != nullptr ? core->view(parent) : std::nullopt;
  const std::uint64_t num_prompt_tokens = view ? view->num_prompt_tokens : 0;
  const std::uint64_t num_tokens = given.num_tokens > 0 || !view ? given.num_tokens : view->tokens.size();
  if (given.next_token) child.next_token = left_out(num_tokens - std::min(num_tokens, num_prompt_tokens));
  return child;
}

std::span<const Draft> CallRedactor::drafts(std::span<const Draft> given) {
  std::size_t size = 0;
  for (const Draft& draft : given) size += draft.tokens.size();
  draft_tokens_.clear();
  draft_tokens_.reserve(size);
  drafts_.clear();
  for (const Draft& draft : given) {
    const std::size_t begin = draft_tokens_.size();
    for (const TokenId token : draft.tokens) draft_tokens_.push_back(token < 0 ? token : left_out());
    drafts_.push_back({draft.id, std::span(draft_tokens_).subspan(begin)});
  }
  QUIRE_CHECK(draft_tokens_.size() == size, "memory is reserved for all draft tokens, so earlier views stay valid");
  return drafts_;
}

// Finds the position of each sampled token among its request's outputs. The tokens of a request are adjacent.
void CallRedactor::begin_result(const Core* core, const StepResult& given) {
  places_.assign(given.sampled.size(), 0);
  for (std::size_t i = 0; detects_repetition_ && core != nullptr && i < places_.size(); ++i) {
    const bool is_next = i > 0 && given.sampled[i].id == given.sampled[i - 1].id;
    if (is_next) places_[i] = places_[i - 1] + 1;
    if (is_next) continue;
    if (const auto view = core->view(given.sampled[i].id)) places_[i] = view->tokens.size() - view->num_prompt_tokens;
  }
}

SampledToken* CallRedactor::find(RequestId id, std::size_t count) {
  QUIRE_CHECK(count > 0, "the count starts at 1");
  for (SampledToken& sampled : sampled_)
    if (sampled.id == id && --count == 0) return &sampled;
  return nullptr;
}

StepResult CallRedactor::result(const StepResult& given, const StepOutcome* outcome) {
  QUIRE_CHECK(places_.size() == given.sampled.size(), "begin_result was called for this result");
  sampled_.clear();
  sampled_.reserve(given.sampled.size());
  for (std::size_t i = 0; i < given.sampled.size(); ++i) {
    const SampledToken& sampled = given.sampled[i];
    sampled_.push_back({sampled.id, sampled.token < 0 ? sampled.token : left_out(places_[i])});
  }
  for (const RequestUpdate& update : outcome != nullptr ? outcome->updates : std::span<const RequestUpdate>()) {
    SampledToken* const last = update.finished && !update.tokens.empty() ? find(update.id, update.tokens.size()) : nullptr;
    if (last == nullptr) continue;
    const std::uint64_t place = places_[static_cast<std::size_t>(last - sampled_.data())];
    if (update.status == RequestStatus::finished_stopped) last->token = update.tokens.back();
    if (update.status == RequestStatus::finished_repetition) last->token = left_out(place + 1);
  }
  StepResult result = given;
  result.sampled = sampled_;
  return result;
}

}  // namespace quire
