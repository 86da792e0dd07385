#pragma once
// The grammars of open requests: the core asks whether they are compiled and advances them, and the step loop asks for masks. Belongs to
// the engine thread. The rules are vLLM V1's (StructuredOutputManager), except that the output after a reasoning part counts from its first
// token on, also if several tokens come together.
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

  // Sets the callback of GrammarThread; collect() must follow each call.
  void set_notify(std::function<void()> notify) { thread_.set_notify(std::move(notify)); }
  // Queues a request's grammar for compilation. `restarts`: restart() may follow.
  void add(RequestId id, std::shared_ptr<const StructuredOutput> wanted, bool restarts = false);
  // Queues the grammar of a search's first beam. The sampled tokens of a beam do not advance its grammar; follow() does, with the chosen
  // token.
  void add_beam(RequestId id, std::shared_ptr<const StructuredOutput> wanted);
  // Adds a beam `next` that continues a computed beam with `token`.
  void follow(RequestId beam, RequestId next, TokenId token);
  // Resets a session's grammar for its next answer.
  void restart(RequestId id);
  // Removes a request's grammar. Unknown requests are ignored.
  void remove(RequestId id);
  [[nodiscard]] bool is_compiling() const { return num_compiling_ > 0; }

  struct Failure {
    RequestId id;
    Error error;
  };
  // Takes the newly compiled grammars. Returns the requests with grammars that cannot be compiled, and the requests that failed since the
  // last call.
  std::vector<Failure> collect();
  // Sets the draft tokens that the worker keeps for the next step. They replace the placeholders in the plan (ScheduledRequest::drafts).
  // Requests without a grammar are ignored.
  void expect(RequestId id, std::span<const TokenId> drafts);
  // Returns the masks of the plan's sampling requests with a grammar that has begun, or begins with one of their draft tokens. Valid until
  // the next call.
  std::span<const TokenMask> masks(const StepPlan& plan);

  bool ready(RequestId id) override;
  bool should_advance(const RequestView& request) override;
  bool accept(RequestId id, std::span<const TokenId> tokens) override;
  std::uint32_t count_valid(RequestId id, std::span<const TokenId> drafts) override;
  // Copies the parent's grammar. Returns false unless the child starts at the end of the parent's outputs. For beams it returns true and
  // copies nothing, because follow() copies their grammar.
  bool fork(RequestId parent, RequestId child, std::uint32_t num_outputs) override;

 private:
  // A request with a grammar, from add() to remove().
  struct GrammarState {
    std::shared_ptr<const StructuredOutput> wanted;
    std::unique_ptr<GrammarMatcher> matcher{};                // null: not compiled yet
    std::shared_ptr<const GrammarMatcher> initial_matcher{};  // `matcher` before the first token, if `restarts`
    bool begun = false;
    bool is_beam = false, restarts = false;
    std::size_t num_outputs = 0;  // outputs already searched for the beginning
    std::size_t begin = 0;        // index of the first output that counts
    std::vector<TokenId> tail{};  // before the beginning: the last outputs, fewer than `begin_after` has
    // The worker's draft tokens; the core knows only how many there are.
    std::vector<TokenId> expected{};
  };
  static std::span<const TokenId> drafts_of(const GrammarState& answer, const ScheduledRequest& request);
  // Returns the first row of a request that the grammar masks: row 0 follows the last known token, each further row a draft token; nullopt:
  // none.
  static std::optional<std::size_t> first_row(const GrammarState& answer, std::span<const TokenId> drafts);
  [[nodiscard]] bool fill(GrammarMatcher& matcher, std::span<const TokenId> drafts, std::span<std::uint32_t> words) const;

  GrammarThread thread_;
  std::uint32_t num_words_;  // words per row of a mask
  std::unordered_map<RequestId, GrammarState> answers_;
  // The number of answers without a matcher.
  std::size_t num_compiling_ = 0;
  std::vector<Failure> failures_;
  // The rows of all masks of a plan, in sequence. A bit per token; set: the token is allowed.
  std::vector<std::uint32_t> words_;
  std::vector<TokenMask> masks_;
};

}  // namespace quire
