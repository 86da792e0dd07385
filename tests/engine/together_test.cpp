// Runs random pairs and triples of features on a real model. Each request must get the bits that it gets alone on a plain engine.
// QUIRE_TOGETHER_ROUNDS sets the number of rounds (default 48, of which QUIRE_TEST_ROUNDS takes a part). docs/together.md must equal what
// engines accept and refuse: QUIRE_RECORD_TOGETHER=1 engine_test --gtest_filter='Together.*' writes it, from the root of the repository.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "engine/mixed_engine.h"
#include "support/rounds.h"
#include "support/sanitized.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kRoundsPerEngine = 8, kTexts = 6;

std::uint32_t num_rounds() {
  const char* rounds = std::getenv("QUIRE_TOGETHER_ROUNDS");
  if (rounds != nullptr) return static_cast<std::uint32_t>(std::strtoul(rounds, nullptr, 10));
  return kSanitized ? 8 : std::max(16U, static_cast<std::uint32_t>(rounds_of(48)));
}

// Returns why neither an engine nor a request can have both features, as a sentence of the page, or an empty text.
std::string_view reason_against(Feature a, Feature b) {
  using enum Feature;
  const std::set pair{a, b};
  if (pair == std::set{windows, states} || pair == std::set{states, pictures}) return "No supported model has both features.";
  if (pair == std::set{drafts, draft_model})
    return "With `--speculative-model`, draft tokens come from the draft model instead of from earlier text (n-gram).";
  if (pair == std::set{priorities, continuum}) return "A server has one scheduling policy.";
  if (pair == std::set{grammar, tools})
    return "A request has one grammar. [Tools and reasoning](tools.md) describes the grammar of a chat that sends both fields.";
  if (pair == std::set{pooling, hidden}) return "A pooling request returns either one vector or a vector for each token.";
  return {};
}

bool is_possible(FeatureSet set) {
  for (std::size_t a = 0; a < kNumFeatures; ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (set.has(static_cast<Feature>(a)) && set.has(static_cast<Feature>(b)) &&
          !reason_against(static_cast<Feature>(a), static_cast<Feature>(b)).empty())
        return false;
  return has_structured_output() || !(set.has(Feature::grammar) || set.has(Feature::tools));
}

Feature draw_feature(Random& random, bool of_engine) {
  return static_cast<Feature>(of_engine ? random.below(kFirstOfRequests)
                                        : kFirstOfRequests + random.below(kNumFeatures - kFirstOfRequests));
}

// Asks for both in one request, or if that is refused for one in each request.
void ask_both(Mixed& mixed, Alone& alone, FeatureSet set, Random& random) {
  const auto text = [&] { return static_cast<std::uint32_t>(random.below(kTexts)); };
  if (alone.takes(set)) return mixed.ask(set, text(), random);
  for (std::size_t i = kFirstOfRequests; i < kNumFeatures; ++i)
    if (set.has(static_cast<Feature>(i))) mixed.ask({static_cast<Feature>(i)}, text(), random);
}

void play_engine(FeatureSet engine, const std::string& model, Alone& alone, Random& random, MetTogether& met) {
  // Without prefix caching a request has a single state.
  const bool has_tier = engine.has(Feature::dram) || engine.has(Feature::disk);
  Mixed mixed(engine, model, alone, has_tier || !engine.has(Feature::states) || random.chance(0.7));
  const bool sees = seeing_model_of(model) != nullptr;
  if (!mixed.is_made()) return;
  for (std::uint32_t round = 0; round < kRoundsPerEngine && !testing::Test::HasFailure(); ++round) {
    FeatureSet request;
    do {
      request = FeatureSet{draw_feature(random, false)};
      if (random.chance(0.6)) request.add(draw_feature(random, false));
    } while (!is_possible(request) || (request.has(Feature::pictures) && !sees));
    if (sees && random.chance(0.7)) request.add(Feature::pictures);
    ask_both(mixed, alone, request, random);
    for (std::uint64_t i = random.below(6); i > 0; --i) mixed.ask({}, static_cast<std::uint32_t>(random.below(kTexts)), random);
    if (random.chance(0.6)) ask_both(mixed, alone, request, random);
    mixed.expect_all(met);
    if (random.chance(0.4)) mixed.forget_cached();
    FeatureSet all = engine;
    for (std::size_t i = kFirstOfRequests; i < kNumFeatures; ++i)
      if (request.has(static_cast<Feature>(i))) all.add(static_cast<Feature>(i));
    met.sets.insert(all);
    ++met.num_rounds;
  }
  mixed.stop(met);
}

TEST(Together, EachRequestMatchesItsAnswerAlone) {
  const char* real = std::getenv("QUIRE_TEST_MODEL");
  if (real == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set";
  const TempFolder folder;
  // The answers alone, for each model, by the features that change bits.
  const std::string models[] = {real,
                                write_windowed_model(folder.file("windowed")),
                                write_convolved_model(folder.file("convolved")),
                                write_scanned_model(folder.file("scanned")),
                                write_seeing_model(folder.path(), kSmolVlm),
                                write_seeing_model(folder.path(), kQwenModel)};
  std::map<std::pair<std::string, FeatureSet>, Alone> alone;
  MetTogether met;
  const auto has_enough = [&] { return met.num_rounds >= num_rounds() && met.num_forks > 0 && met.num_preemptions > 0; };
  for (std::uint64_t seed = 0; !has_enough() && seed < 4U * num_rounds() && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    FeatureSet engine;
    do {
      engine = FeatureSet{draw_feature(random, true)};
      if (random.chance(0.7)) engine.add(draw_feature(random, true));
    } while (!is_possible(engine));
    const std::size_t other = seed % 3 == 0 ? 4 + seed / 3 % 2 : 0;
    const std::string& model = models[engine.has(Feature::windows) ? 1 : engine.has(Feature::states) ? 2 + seed % 2 : other];
    const FeatureSet numbers = engine.of_numbers();
    play_engine(engine, model, alone.try_emplace({model, numbers}, model, numbers).first->second, random, met);
  }
  fmt::print("{} rounds, {} answers, {} sets of features, {} preemptions, {} loads, {} forks, {} swapped back, {} drafts accepted\n",
             met.num_rounds, met.num_answers, met.sets.size(), met.num_preemptions, met.num_loads, met.num_forks, met.num_swapped,
             met.num_accepted);
  RecordProperty("rounds", static_cast<int>(met.num_rounds));
  EXPECT_GT(met.num_forks, 0U) << "no fork happened";
  EXPECT_GT(met.num_preemptions, 0U) << "no preemption happened";
  if (met.num_rounds < 500) return;
  EXPECT_GT(met.num_loads, 100U);
  EXPECT_GT(met.num_swapped, 10U);
  EXPECT_GT(met.num_accepted, 100U);
  EXPECT_GT(met.num_preemptions, 100U);
}

// An error of the engine, and the sentence of the page that stands for it.
struct RefusalText {
  std::string_view error, sentence;
};
constexpr RefusalText kRefusals[] = {
    {"n: is set, but a session does not support it; leave it out",
     "A session generates one answer to each input, so it refuses beam search, and `n` and `best_of` above 1."},
    {"pooling: is set, but a session does not support it; leave it out", "A session generates tokens, so it cannot be a pooling request."},
    {"prompt_logprobs: is set, but a session does not support it; leave it out",
     "A session does not return log probabilities of the prompt, because its prompt is complete only at the end."},
    {"prompt_logprobs: is set, but beam search does not support it; leave it out, or turn beam search off",
     "Beam search does not return log probabilities of the prompt."},
    {"n: is set, but a pooling request generates no tokens; leave it out",
     "A pooling request generates no tokens, so it refuses beam search, and `n` and `best_of` above 1."},
    {"structured_output: is set, but a pooling request generates no tokens; leave it out",
     "A pooling request generates no tokens, so it refuses structured output and tools."},
    {"prompt_logprobs: is set, but a pooling request generates no tokens; leave it out", "A pooling request returns no log probabilities."},
    {"parent: a request with beam search cannot be forked; fork a request without beam search",
     "A request with beam search cannot be forked."},
    {"parent: a pooling request cannot be forked; add a request with the same tokens",
     "A pooling request cannot be forked. Send a new request with the same tokens instead."}};

// Returns the page's sentence for an error; for an error without a sentence, the error itself.
std::string sentence_for(const std::string& error) {
  for (const RefusalText& refusal : kRefusals)
    if (refusal.error == error) return std::string(refusal.sentence);
  return error;
}

// Tests a pair of features: empty if they work together, else the reason.
class Pairs {
 public:
  Pairs(const std::string& windowed, const std::string& with_states, const std::string& seeing, const std::string& seeing_windowed)
      : windowed_(windowed),
        with_states_(with_states),
        seeing_(seeing),
        seeing_windowed_(seeing_windowed),
        alone_(windowed, {}),
        alone_seeing_(seeing, {}) {}

  std::string refusal(Feature a, Feature b) {
    if (const std::string_view reason = reason_against(a, b); !reason.empty()) return std::string(reason);
    const bool is_a_engine = static_cast<std::size_t>(a) < kFirstOfRequests, is_b_engine = static_cast<std::size_t>(b) < kFirstOfRequests;
    const bool shows = b == Feature::pictures;
    if (!is_a_engine) return of_request({a, b}, (shows ? alone_seeing_ : alone_).engine());
    const TempFolder folder;
    FeatureSet engine{a};
    if (is_b_engine) engine.add(b);
    const bool has_states = engine.has(Feature::states);
    if (!has_states && !shows) engine.add(Feature::windows);  // a feature of the model
    const std::string& seeing = a == Feature::windows ? seeing_windowed_ : seeing_;
    const Made made = make_options(engine, has_states ? with_states_ : shows ? seeing : windowed_, folder.file("kv"));
    const auto created = create_engine(made.options, nullptr, nullptr, made.seams);
    if (!created) return sentence_for(created.error().to_string());
    if (is_b_engine) return {};
    return of_request({b}, **created);
  }

 private:
  std::string of_request(FeatureSet set, Engine& engine) {
    Collector sink;
    const EngineRequest request = make_mixed(set, 0, 70);
    // A request that will be forked must not end before.
    if (set.has(Feature::fork)) engine.pause({.mode = PauseMode::keep, .clear_cache = false}, [](const Result<bool>&) {});
    const auto id = engine.submit(request, sink);
    if (!id) {
      engine.resume([](const Result<bool>&) {});
      return sentence_for(id.error().to_string());
    }
    std::string refusal;
    if (set.has(Feature::fork)) refusal = of_fork(*id, engine, sink);
    for (std::uint32_t i = 0; i < request.n; ++i) engine.finish({id->value + i}, FinishReason::abort);
    for (std::uint32_t i = 0; i < request.n; ++i) (void)sink.wait({id->value + i});
    return refusal;
  }

  // The engine is paused until the fork is accepted.
  std::string of_fork(RequestId parent, Engine& engine, Collector& sink) {
    Result<RequestId> child = engine.fork(parent, {}, sink);
    while (!child && child.error().code == ErrorCode::overloaded) child = engine.fork(parent, {}, sink);
    std::string refusal;
    if (!child) {
      refusal = sentence_for(child.error().to_string());
    } else {
      engine.resume([](const Result<bool>&) {});
      // An accepted child gets tokens soon, unless it is a session that waits for input. A refused one ends with an error.
      sink.wait_for_tokens(*child, 1, std::chrono::seconds(5));
      if (sink.wait_for_end(*child, 0)) refusal = sentence_for(sink.wait(*child).error);
      engine.finish(*child, FinishReason::abort);
      (void)sink.wait(*child);
    }
    engine.resume([](const Result<bool>&) {});
    return refusal;
  }

  std::string windowed_, with_states_, seeing_, seeing_windowed_;
  Alone alone_, alone_seeing_;
};

std::string together_page(Pairs& pairs) {
  std::string page = fmt::format(
      "# Features that work together\n\n"
      "The table shows for each pair of features whether they can be combined. Features 1 to {} are options of the server or properties\n"
      "of the model. Features {} to {} are chosen by each request.\n\n"
      "- `+`: the features can be combined in one engine and, if requests choose both, in one request. Each request gets the result that\n"
      "  it gets alone, bit for bit.\n"
      "- A letter: the features cannot be combined. The list below the table gives the reason. If requests choose both features, one\n"
      "  engine can still run a request with one of them and a request with the other at the same time.\n\n"
      "A test writes this page (`tests/engine/together_test.cpp`). Another test in the same file runs random pairs and triples of\n"
      "features on a real model, and compares each answer with the answer to the same request alone.\n\n"
      "| | feature | how |",
      kFirstOfRequests, kFirstOfRequests + 1, kNumFeatures);
  std::string line = "\n|---|---|---|";
  for (std::size_t i = 1; i < kNumFeatures; ++i) {
    page += fmt::format(" {} |", i);
    line += "---|";
  }
  page += line + "\n";
  std::vector<std::string> reasons;
  for (std::size_t b = 0; b < kNumFeatures; ++b) {
    page += fmt::format("| {} | {} | {} |", b + 1, kFeatureTexts[b].name, kFeatureTexts[b].how);
    for (std::size_t a = 0; a + 1 < kNumFeatures; ++a) {
      const std::string refusal = a < b ? pairs.refusal(static_cast<Feature>(a), static_cast<Feature>(b)) : "";
      if (!refusal.empty() && std::ranges::find(reasons, refusal) == reasons.end()) reasons.push_back(refusal);
      const auto at = std::ranges::find(reasons, refusal) - reasons.begin();
      page += a >= b ? "   |" : refusal.empty() ? " + |" : fmt::format(" {} |", static_cast<char>('a' + at));
    }
    page += "\n";
  }
  page += "\n";
  for (std::size_t i = 0; i < reasons.size(); ++i) page += fmt::format("- **{}**: {}\n", static_cast<char>('a' + i), reasons[i]);
  return page;
}

TEST(Together, ThePageMatchesWhatEnginesAcceptAndRefuse) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  constexpr const char* kPage = "docs/together.md";
  const TempFolder folder;
  Pairs pairs(write_windowed_model(folder.file("windowed")), write_scanned_model(folder.file("scanned")),
              write_seeing_model(folder.path(), kSmolVlm), write_seeing_model(folder.path(), kGemmaModel));
  const std::string page = together_page(pairs);
  if (std::getenv("QUIRE_RECORD_TOGETHER") != nullptr) std::ofstream(kPage) << page;
  std::ostringstream kept;
  kept << std::ifstream(kPage).rdbuf();
  EXPECT_EQ(kept.str(), page) << kPage << " is read from the root of the repository";
}

}  // namespace
}  // namespace quire::test
