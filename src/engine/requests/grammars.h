#pragma once
// The grammars of open requests. The core asks whether a grammar is compiled, and advances grammars; the step loop asks for token masks.
// Belongs to the engine thread. The rules are vLLM V1's (StructuredOutputManager), with one exception: the output after a reasoning part
// counts from its first token on, even if several tokens come together.
//
// States of a request here, and the function that moves it:
//   compiling  its grammar is queued                                add
//   waiting    its answer has not reached the grammar's beginning   collect
//   begun      its tokens advance the grammar                       should_advance
//   failed     the grammar has reached a limit of its cost          masks
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/requests/grammar_thread.h"
#include "quire/base/plan.h"
#include "quire/connector.h"
#include "runtime/worker/worker_base.h"

namespace quire {

class Grammars final : public Grammar {
 public:
  Grammars(std::shared_ptr<const TokenizerSpec> tokenizer, std::uint32_t vocab_size);

  // Sets the callback of GrammarThread. collect() must be called after each call of the callback.
  void set_notify(std::function<void()> notify) { thread_.set_notify(std::move(notify)); }
  // Queues a request's grammar for compilation. `restarts`: restart() may be called later.
  void add(RequestId id, std::shared_ptr<const StructuredOutput> wanted, bool restarts = false);
  // Queues the grammar of the first beam of a search. The sampled tokens of a beam do not advance its grammar; follow() advances it with
  // the chosen token.
  void add_beam(RequestId id, std::shared_ptr<const StructuredOutput> wanted);
  // Adds a beam `next` that continues a computed beam with `token`.
  void follow(RequestId beam, RequestId next, TokenId token);
  // Resets a session's grammar for its next answer.
  void restart(RequestId id);
  // Removes a request's grammar. Unknown ids are ignored.
  void remove(RequestId id);
  [[nodiscard]] bool is_compiling() const { return num_compiling_ > 0; }

  struct Failure {
    RequestId id;
    Error error;
  };
  // Takes the newly compiled grammars. Returns the requests whose grammar does not compile, and the requests whose grammar failed since the
  // last call.
  std::vector<Failure> collect();
  // Sets the draft tokens that the worker keeps for the next step, in place of the placeholders in the plan (ScheduledRequest::drafts).
  // Requests without a grammar are ignored.
  void expect(RequestId id, std::span<const TokenId> drafts);
  // Returns the masks for the sampling requests of the plan whose grammar has begun, or begins with one of their draft tokens. Valid until
  // the next call.
  std::span<const TokenMask> masks(const StepPlan& plan);

  bool ready(RequestId id) override;
  bool should_advance(const RequestView& request) override;
  bool accept(RequestId id, std::span<const TokenId> tokens) override;
  std::uint32_t count_valid(RequestId id, std::span<const TokenId> drafts) override;
  // Copies the parent's grammar. Returns false unless the child starts at the end of the parent's outputs. For beams, returns true and
  // copies nothing, because follow() copies their grammars.
  bool fork(RequestId parent, RequestId child, std::uint32_t num_outputs) override;

 private:
  // A request with a grammar, from add() to remove().
  struct GrammarState {
    std::shared_ptr<const StructuredOutput> wanted;
    std::unique_ptr<GrammarMatcher> matcher{};                // null: not compiled yet
    std::shared_ptr<const GrammarMatcher> initial_matcher{};  // `matcher` before the first token, if `restarts`
    bool begun = false;
    bool is_beam = false, restarts = false;
    std::size_t num_outputs = 0;  // number of outputs that were already searched for the beginning
    std::size_t begin = 0;        // index of the first output to which the grammar applies
    std::vector<TokenId> tail{};  // before the grammar begins: the last outputs, fewer than `begin_after` has tokens
    // The worker's draft tokens; the core knows only their number.
    std::vector<TokenId> expected{};
  };
  static std::span<const TokenId> drafts_of(const GrammarState& answer, const ScheduledRequest& request);
  // Returns the first row of a request that the grammar masks; nullopt: none. Row 0 follows the last known token, and each further row
  // follows a draft token.
  static std::optional<std::size_t> first_row(const GrammarState& answer, std::span<const TokenId> drafts);
  [[nodiscard]] bool fill(GrammarMatcher& matcher, std::span<const TokenId> drafts, std::span<std::uint32_t> words) const;

  GrammarThread thread_;
  std::uint32_t num_words_;  // words per row of a mask
  std::unordered_map<RequestId, GrammarState> answers_;
  // Number of answers whose grammar is not compiled yet.
  std::size_t num_compiling_ = 0;
  std::vector<Failure> failures_;
  // The rows of all masks of a plan, one after another, with one bit per token. A set bit allows the token.
  std::vector<std::uint32_t> words_;
  std::vector<TokenMask> masks_;
};

}  // namespace quire
