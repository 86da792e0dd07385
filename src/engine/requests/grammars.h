#pragma once
// The grammars of open requests: the core asks whether they are compiled and moves them on, the step loop asks them for masks. Belongs to
// the engine thread. Rules are those of vLLM V1's StructuredOutputManager; but what follows the end of a reasoning part counts from its
// first token on, also where several tokens come at once.
//
// States of a request here, and who moves it:
//   compiling  asked for                                          add
//   waiting    its answer has not come to the grammar's beginning  collect
//   begun      its tokens move the grammar on                      should_advance
//   failed     a limit of the grammar's cost was met               masks
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

  // See GrammarThread; collect() is to follow.
  void notify_with(std::function<void()> notify) { thread_.notify_with(std::move(notify)); }
  // `restarts`: restart() may follow.
  void add(RequestId id, std::shared_ptr<const StructuredOutput> wanted, bool restarts = false);
  // Of the first beam of a search. What a beam samples does not move its grammar on: follow() does, with the token that was chosen.
  void add_beam(RequestId id, std::shared_ptr<const StructuredOutput> wanted);
  // Another beam that goes on from one which has been computed.
  void follow(RequestId beam, RequestId next, TokenId token);
  // Another answer of a session begins.
  void restart(RequestId id);
  // Unknown ones are ignored.
  void remove(RequestId id);
  [[nodiscard]] bool is_compiling() const { return num_compiling_ > 0; }

  struct Failure {
    RequestId id;
    Error error;
  };
  // Takes what has been compiled meanwhile. Those that are not to be had, and those that failed since the last call.
  std::vector<Failure> collect();
  // The worker's own drafts behind what it has sampled: they take the places that a plan holds for them (ScheduledRequest::drafts). Others
  // than requests with a grammar are ignored.
  void expect(RequestId id, std::span<const TokenId> drafts);
  // For those of the plan that sample and have begun, or begin with one of their drafts. Valid until the next call.
  std::span<const TokenMask> masks(const StepPlan& plan);

  bool ready(RequestId id) override;
  bool should_advance(const RequestView& request) override;
  bool accept(RequestId id, std::span<const TokenId> tokens) override;
  std::uint32_t count_valid(RequestId id, std::span<const TokenId> drafts) override;
  // Only where the parent's output ends; beams are not asked about, they follow().
  bool fork(RequestId parent, RequestId child, std::uint32_t num_outputs) override;

 private:
  // A request with a grammar, from add() to remove().
  struct Answer {
    std::shared_ptr<const StructuredOutput> wanted;
    std::unique_ptr<GrammarMatcher> matcher{};         // null: not compiled yet
    std::shared_ptr<const GrammarMatcher> at_start{};  // where `matcher` began, if it restarts
    bool begun = false;
    bool is_beam = false, restarts = false;
    std::size_t num_outputs = 0;  // looked through for the beginning
    std::size_t begin = 0;        // the first output that counts
    std::vector<TokenId> tail{};  // not begun: the last outputs, fewer than its beginning has
    // The worker's drafts, of which the core knows only how many there are.
    std::vector<TokenId> expected{};
  };
  static std::span<const TokenId> drafts_of(const Answer& answer, const ScheduledRequest& request);
  // The first of a request's rows that it masks: behind its last known token, or one of its drafts; nullopt: none.
  static std::optional<std::size_t> first_row(const Answer& answer, std::span<const TokenId> drafts);
  [[nodiscard]] bool fill(GrammarMatcher& matcher, std::span<const TokenId> drafts, std::span<std::uint32_t> words) const;

  GrammarThread thread_;
  std::uint32_t num_words_;  // of a mask
  std::unordered_map<RequestId, Answer> answers_;
  // Answers without a matcher.
  std::size_t num_compiling_ = 0;
  std::vector<Failure> failures_;
  // Of all masks of a plan, row after row; a bit for each token, set: it may come.
  std::vector<std::uint32_t> words_;
  std::vector<TokenMask> masks_;
};

}  // namespace quire
