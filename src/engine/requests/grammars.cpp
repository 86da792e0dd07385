// Computes token masks for requests with a grammar. The core calls ready(), should_advance(), accept(), count_valid() and fork() from
// within its functions; the step loop calls the other functions. All calls are on the engine thread. Only compilation runs on another
// thread (GrammarThread), and no function here waits for it. masks() leaves a matcher unchanged unless the matcher fails: draft tokens are
// tried and rolled back.
#include "engine/requests/grammars.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

Grammars::Grammars(std::shared_ptr<const TokenizerSpec> tokenizer, std::uint32_t vocab_size)
    : thread_(std::move(tokenizer), vocab_size), num_words_((vocab_size + 31) / 32) {}

void Grammars::add(RequestId id, std::shared_ptr<const StructuredOutput> wanted, bool restarts) {
  thread_.put(id, wanted);
  const bool begun = wanted->begin_after.empty();
  answers_.insert_or_assign(id, GrammarState{.wanted = std::move(wanted), .begun = begun, .restarts = restarts});
  ++num_compiling_;
}

void Grammars::add_beam(RequestId id, std::shared_ptr<const StructuredOutput> wanted) {
  add(id, std::move(wanted));
  answers_.at(id).is_beam = true;
}

void Grammars::follow(RequestId beam, RequestId next, TokenId token) {
  const GrammarState& from = answers_.at(beam);
  QUIRE_CHECK(from.is_beam && from.matcher != nullptr, "a beam that has been computed has a grammar matcher");
  GrammarState answer{.wanted = from.wanted,
                      .matcher = std::make_unique<GrammarMatcher>(from.matcher->clone()),
                      .begun = from.begun,
                      .is_beam = true,
                      .tail = from.tail};
  if (answer.begun) {
    if (!answer.matcher->is_over()) answer.matcher->accept(token);
  } else {
    const std::vector<TokenId>& marker = answer.wanted->begin_after;
    answer.tail.push_back(token);
    answer.begun = answer.tail == marker;
    if (answer.tail.size() >= marker.size()) answer.tail.erase(answer.tail.begin());
  }
  answers_.insert_or_assign(next, std::move(answer));
}

void Grammars::restart(RequestId id) {
  GrammarState& answer = answers_.at(id);
  QUIRE_CHECK(answer.initial_matcher != nullptr, "a session that has answered has its grammar matcher");
  answer = GrammarState{.wanted = answer.wanted,
                        .matcher = std::make_unique<GrammarMatcher>(answer.initial_matcher->clone()),
                        .initial_matcher = answer.initial_matcher,
                        .begun = answer.wanted->begin_after.empty()};
}

void Grammars::remove(RequestId id) {
  const auto found = answers_.find(id);
  if (found == answers_.end()) return;
  if (!found->second.matcher) {
    thread_.forget(id);
    --num_compiling_;
  }
  answers_.erase(found);
}

std::vector<Grammars::Failure> Grammars::collect() {
  for (GrammarThread::Compiled& compiled : thread_.take()) {
    const auto found = answers_.find(compiled.id);
    if (found == answers_.end()) continue;
    if (compiled.matcher) {
      found->second.matcher = std::make_unique<GrammarMatcher>(*std::move(compiled.matcher));
      if (found->second.restarts) found->second.initial_matcher = std::make_shared<const GrammarMatcher>(found->second.matcher->clone());
      --num_compiling_;
    } else {
      failures_.push_back({compiled.id, std::move(compiled.matcher.error())});
    }
  }
  return std::exchange(failures_, {});
}

void Grammars::expect(RequestId id, std::span<const TokenId> drafts) {
  const auto found = answers_.find(id);
  if (found != answers_.end()) found->second.expected.assign(drafts.begin(), drafts.end());
}

std::span<const TokenId> Grammars::drafts_of(const GrammarState& answer, const ScheduledRequest& request) {
  if (request.drafts.empty() || request.drafts.front() >= 0) return request.drafts;
  return std::span(answer.expected).first(std::min(request.drafts.size(), answer.expected.size()));
}

std::optional<std::size_t> Grammars::first_row(const GrammarState& answer, std::span<const TokenId> drafts) {
  if (answer.begun) return 0;
  std::vector<TokenId> expected = answer.tail;
  expected.insert(expected.end(), drafts.begin(), drafts.end());
  const auto at = std::ranges::search(expected, answer.wanted->begin_after);
  if (at.empty()) return std::nullopt;
  return static_cast<std::size_t>(at.end() - expected.begin()) - answer.tail.size();
}

// Fills one row after another as if the draft tokens were accepted. Rows after a draft token that the grammar rejects allow no token,
// because they are never sampled.
bool Grammars::fill(GrammarMatcher& matcher, std::span<const TokenId> drafts, std::span<std::uint32_t> words) const {
  const std::uint32_t num_fitting = drafts.empty() ? 0 : matcher.count_valid(drafts);
  bool is_good = matcher.fill(words.first(num_words_));
  for (std::uint32_t i = 0; is_good && i < num_fitting; ++i)
    is_good = matcher.accept(drafts[i]) && matcher.fill(words.subspan((i + 1) * std::size_t{num_words_}, num_words_));
  std::ranges::fill(words.subspan((num_fitting + 1) * std::size_t{num_words_}), 0U);
  return is_good && (num_fitting == 0 || matcher.rollback(num_fitting));
}

std::span<const TokenMask> Grammars::masks(const StepPlan& plan) {
  masks_.clear();
  std::size_t num_rows = 0, row = 0;
  for (const ScheduledRequest& request : plan.scheduled) num_rows += 1 + request.drafts.size();
  words_.resize(std::max(words_.size(), num_rows * num_words_));
  for (const ScheduledRequest& request : plan.scheduled) {
    if (!request.samples) continue;
    const auto found = answers_.find(request.id);
    if (found == answers_.end()) continue;
    const std::span<const TokenId> drafts = drafts_of(found->second, request);
    const std::optional<std::size_t> first = first_row(found->second, drafts);
    if (!first) continue;
    const std::span<std::uint32_t> words = std::span(words_).subspan(row * num_words_, (1 + drafts.size()) * num_words_);
    row += 1 + drafts.size();
    // Rows before the beginning of the grammar allow every token.
    std::ranges::fill(words.first(*first * num_words_), ~0U);
    GrammarMatcher& matcher = *found->second.matcher;
    if (fill(matcher, drafts.subspan(*first), words.subspan(*first * num_words_)))
      // The mask is a view of words_, which was made large enough for all rows above and must not grow any more.
      masks_.push_back({request.id, words});
    else
      failures_.push_back({request.id, {ErrorCode::invalid_argument, "structured_output", matcher.error(), "send a simpler grammar"}});
  }
  return masks_;
}

bool Grammars::ready(RequestId id) {
  const auto found = answers_.find(id);
  return found != answers_.end() && found->second.matcher != nullptr;
}

bool Grammars::should_advance(const RequestView& request) {
  const auto found = answers_.find(request.id);
  if (found == answers_.end()) return false;
  GrammarState& answer = found->second;
  if (answer.is_beam) return false;
  const std::span<const TokenId> outputs = request.tokens.subspan(request.num_prompt_tokens);
  if (!answer.begun) {
    const std::vector<TokenId>& marker = answer.wanted->begin_after;
    const std::size_t from = answer.num_outputs - std::min(answer.num_outputs, marker.size() - 1);
    const auto at = std::ranges::search(outputs.subspan(from), marker);
    answer.begun = !at.empty();
    if (answer.begun) answer.begin = static_cast<std::size_t>(at.end() - outputs.begin());
    const auto kept = outputs.last(std::min(outputs.size(), marker.size() - 1));
    answer.tail.assign(kept.begin(), kept.end());
  }
  answer.num_outputs = outputs.size();
  return answer.begun;
}

bool Grammars::accept(RequestId id, std::span<const TokenId> tokens) {
  GrammarState& answer = answers_.at(id);
  const std::size_t first = answer.num_outputs - tokens.size();
  if (answer.begin > first) tokens = tokens.subspan(std::min(tokens.size(), answer.begin - first));
  // A completed grammar accepts the ids that end a generation, any number of times.
  return std::ranges::all_of(tokens, [&](TokenId token) { return answer.matcher->is_over() || answer.matcher->accept(token); });
}

std::uint32_t Grammars::count_valid(RequestId id, std::span<const TokenId> drafts) {
  return answers_.at(id).matcher->count_valid(drafts);
}

bool Grammars::fork(RequestId parent, RequestId child, std::uint32_t num_outputs) {
  const auto found = answers_.find(parent);
  if (found != answers_.end() && found->second.is_beam) return true;
  if (found == answers_.end() || found->second.num_outputs != num_outputs) return false;
  const GrammarState& from = found->second;
  // The grammar is still being compiled, so the child waits for a separate matcher. The thread caches compiled grammars, so the second
  // compilation costs little.
  if (from.matcher == nullptr) {
    add(child, from.wanted, from.restarts);
    return true;
  }
  answers_.insert_or_assign(child, GrammarState{.wanted = from.wanted,
                                                .matcher = std::make_unique<GrammarMatcher>(from.matcher->clone()),
                                                .initial_matcher = from.initial_matcher,
                                                .begun = from.begun,
                                                .num_outputs = from.num_outputs,
                                                .tail = from.tail});
  return true;
}

}  // namespace quire
