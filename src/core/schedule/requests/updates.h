#pragma once
// The updates of requests in an outcome, and their memory. The vectors keep their capacity from step to step.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/schedule/requests/request.h"
#include "quire/core.h"

namespace quire {

// Filled by Core::apply(), and valid until the next apply(). `StepOutcome::updates`, their tokens and their events point into this memory.
// Nothing may be added once the outcome has views of the events. Tokens must not move, so begin() reserves memory for all of them.
class Updates {
 public:
  Updates(std::uint32_t max_num_seqs, std::uint32_t num_spec_tokens) {
    updates_.reserve(max_num_seqs);
    tokens_.reserve(std::size_t{max_num_seqs} * (1 + num_spec_tokens));
  }

  // Invalidates all earlier updates. At most `num_tokens` tokens may follow.
  void begin(std::size_t num_tokens);
  // Adds a copy of a token. Views of the tokens are valid as long as the updates.
  void add_token(TokenId token) {
    QUIRE_CHECK(tokens_.size() < tokens_.capacity(), "memory is reserved, so that earlier views stay valid");
    tokens_.push_back(token);
  }
  [[nodiscard]] std::size_t num_tokens() const { return tokens_.size(); }
  [[nodiscard]] std::span<const TokenId> tokens_from(std::size_t begin) const {
    QUIRE_CHECK(begin <= tokens_.size(), "the first token was added before");
    return std::span(tokens_).subspan(begin);
  }
  // Adds an update, and moves the request's events into it.
  RequestUpdate& report(Request& request, std::uint32_t result_index, std::span<const TokenId> tokens);
  [[nodiscard]] std::span<const RequestUpdate> all() const { return updates_; }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    // All members belong to the outcome, which is not saved.
    [[maybe_unused]] auto& [updates, tokens, events, num_events] = self;
  }

 private:
  std::vector<RequestUpdate> updates_;
  std::vector<TokenId> tokens_;
  std::vector<std::vector<RequestEvent>> events_;  // only the first num_events_ are valid
  std::size_t num_events_ = 0;
};

}  // namespace quire
