#pragma once
// What an outcome says of single requests, and the memory behind it. Vectors keep their capacity from step to step.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/schedule/requests/request.h"
#include "quire/core.h"

namespace quire {

// Filled while one result is taken, read until the next: all views in an outcome point here. So nothing may be added once report() has made
// its views of the events, and the tokens must not move: begin() makes room for all of them.
class Updates {
 public:
  Updates(std::uint32_t max_num_seqs, std::uint32_t num_spec_tokens) {
    updates_.reserve(max_num_seqs);
    tokens_.reserve(std::size_t{max_num_seqs} * (1 + num_spec_tokens));
  }

  // What there was is no longer valid; no more than `num_tokens` are to be added.
  void begin(std::size_t num_tokens);
  // Copies of tokens; views of them live as long as the updates.
  void add_token(TokenId token) {
    QUIRE_CHECK(tokens_.size() < tokens_.capacity(), "views of the tokens before stay valid");
    tokens_.push_back(token);
  }
  [[nodiscard]] std::size_t num_tokens() const { return tokens_.size(); }
  [[nodiscard]] std::span<const TokenId> tokens_from(std::size_t begin) const {
    QUIRE_CHECK(begin <= tokens_.size(), "tokens that were added");
    return std::span(tokens_).subspan(begin);
  }
  // The request's events go with it.
  RequestUpdate& report(Request& request, std::uint32_t result_index, std::span<const TokenId> tokens);
  [[nodiscard]] std::span<const RequestUpdate> all() const { return updates_; }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& /*form*/, Self& self) {
    // Of the outcome.
    [[maybe_unused]] auto& [updates, tokens, events, num_events] = self;
  }

 private:
  std::vector<RequestUpdate> updates_;
  std::vector<TokenId> tokens_;
  std::vector<std::vector<RequestEvent>> events_;  // the first num_events_ count
  std::size_t num_events_ = 0;
};

}  // namespace quire
