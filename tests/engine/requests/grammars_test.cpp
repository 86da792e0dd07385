// The grammars of requests, with tokens that are bytes: when a grammar is ready, which tokens its masks allow, and how it advances, forks,
// follows a beam and restarts.
#include "engine/requests/grammars.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <semaphore>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/spelling_model.h"

namespace quire {
namespace {

constexpr std::size_t kMaskWords = (kVocab + 31) / 32;
constexpr RequestId kOne{1}, kTwo{2}, kThree{3};

std::vector<TokenId> spelled(const std::string& text) {
  return {text.begin(), text.end()};
}

std::shared_ptr<const StructuredOutput> regex_after(const std::string& regex, const std::string& marker = "") {
  return std::make_shared<const StructuredOutput>(
      StructuredOutput{.kind = StructuredOutput::Kind::regex, .text = regex, .begin_after = spelled(marker)});
}

ScheduledRequest sampling_row(RequestId id, std::span<const TokenId> drafts = {}) {
  ScheduledRequest row;
  row.id = id;
  row.samples = true;
  row.drafts = drafts;
  return row;
}

// Returns the tokens among 'a' to 'z' that a row of a mask allows; "*": all tokens.
std::string letters_of(const TokenMask& mask, std::size_t row) {
  const auto words = mask.allowed.subspan(row * kMaskWords, kMaskWords);
  if (std::ranges::all_of(words, [](std::uint32_t word) { return word == ~0U; })) return "*";
  std::string letters;
  for (char letter = 'a'; letter <= 'z'; ++letter)
    if ((words[static_cast<std::size_t>(letter) / 32] >> (letter % 32) & 1U) != 0) letters += letter;
  return letters;
}

class GrammarsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
    grammars_.set_notify([this] {
      num_compiled_.release();
      if (stops_) may_continue_.acquire();
    });
  }
  // Waits until `count` more grammars are compiled, and collects them.
  std::vector<Grammars::Failure> collect(int count = 1) {
    for (int i = 0; i < count; ++i) num_compiled_.acquire();
    return grammars_.collect();
  }
  void add(RequestId id, const std::string& regex, const std::string& marker = "", bool restarts = false) {
    grammars_.add(id, regex_after(regex, marker), restarts);
    EXPECT_TRUE(collect().empty());
  }
  // Advances the grammar as the core does, to these outputs. The last `num_new` of them are new. Returns false if they do not fit.
  bool advance(RequestId id, const std::string& outputs, std::size_t num_new = 1) { return advance(id, spelled(outputs), num_new); }
  bool advance(RequestId id, const std::vector<TokenId>& outputs, std::size_t num_new) {
    if (!begins(id, outputs)) return true;
    return grammars_.accept(id, std::span(outputs).last(num_new));
  }
  // Returns whether the grammar takes part in the newest outputs.
  bool begins(RequestId id, const std::vector<TokenId>& outputs, TokenId last_of_prompt = 2) {
    std::vector<TokenId> tokens = {1, last_of_prompt};
    tokens.insert(tokens.end(), outputs.begin(), outputs.end());
    RequestView view;
    view.id = id;
    view.tokens = tokens;
    view.num_prompt_tokens = 2;
    return grammars_.should_advance(view);
  }
  // Returns the letters that each row of a request's mask allows; empty: the request has no mask.
  std::vector<std::string> rows(RequestId id, const std::vector<TokenId>& drafts = {}) {
    const ScheduledRequest scheduled[] = {sampling_row(id, drafts)};
    StepPlan plan;
    plan.scheduled = scheduled;
    const auto masks = grammars_.masks(plan);
    std::vector<std::string> letters;
    for (const TokenMask& mask : masks) {
      EXPECT_EQ(mask.id, id);
      for (std::size_t row = 0; row < mask.allowed.size() / kMaskWords; ++row) letters.push_back(letters_of(mask, row));
    }
    return letters;
  }
  using Rows = std::vector<std::string>;

  std::counting_semaphore<> num_compiled_{0}, may_continue_{0};
  bool stops_ = false;  // compilation waits for `may_continue_` after each grammar
  Grammars grammars_{spelling_model().tokenizer, kVocab};
};

TEST_F(GrammarsTest, AreReadyWhenTheyAreCollected) {
  EXPECT_FALSE(grammars_.is_compiling());
  grammars_.add(kOne, regex_after("ab"));
  grammars_.add(kTwo, regex_after("("));
  EXPECT_TRUE(grammars_.is_compiling());
  EXPECT_FALSE(grammars_.ready(kOne));
  const auto failures = collect(2);
  EXPECT_TRUE(grammars_.ready(kOne));
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].id, kTwo);
  EXPECT_EQ(failures[0].error.field, "structured_output");
  EXPECT_TRUE(grammars_.collect().empty()) << "each failure is reported once";
  EXPECT_FALSE(grammars_.ready(kTwo));
  EXPECT_TRUE(grammars_.is_compiling()) << "until its request is removed";
  grammars_.remove(kTwo);
  EXPECT_FALSE(grammars_.is_compiling());
  grammars_.remove(kOne);
  grammars_.remove(kOne);
  EXPECT_FALSE(grammars_.ready(kOne));
  EXPECT_FALSE(grammars_.is_compiling());
  EXPECT_FALSE(grammars_.ready(kThree));
}

TEST_F(GrammarsTest, AreDroppedWhenTheirRequestEndsBeforeTheyAreCompiled) {
  grammars_.add(kOne, regex_after("ab"));
  num_compiled_.acquire();
  grammars_.remove(kOne);
  EXPECT_FALSE(grammars_.is_compiling());
  EXPECT_TRUE(grammars_.collect().empty());
  EXPECT_FALSE(grammars_.ready(kOne));
  EXPECT_FALSE(grammars_.is_compiling());
}

TEST_F(GrammarsTest, OfAnEndedRequestAreNotCompiled) {
  stops_ = true;
  grammars_.add(kOne, regex_after("a"));
  num_compiled_.acquire();
  grammars_.add(kTwo, regex_after("b"));
  grammars_.remove(kTwo);
  grammars_.add(kThree, regex_after("c"));
  may_continue_.release();
  EXPECT_TRUE(collect().empty());
  EXPECT_TRUE(grammars_.ready(kThree)) << "it is the second one that is compiled";
  EXPECT_FALSE(grammars_.ready(kTwo));
  may_continue_.release();
}

TEST_F(GrammarsTest, MasksHaveAWordFor32TokensOfTheModel) {
  for (const auto& [vocab_size, num_words] : {std::pair(224U, 7U), std::pair(225U, 8U)}) {
    Grammars grammars(spelling_model().tokenizer, vocab_size);
    std::binary_semaphore compiled{0};
    grammars.set_notify([&compiled] { compiled.release(); });
    grammars.add(kOne, regex_after("a"));
    compiled.acquire();
    EXPECT_TRUE(grammars.collect().empty());
    const ScheduledRequest scheduled[] = {sampling_row(kOne)};
    StepPlan plan;
    plan.scheduled = scheduled;
    const auto masks = grammars.masks(plan);
    ASSERT_EQ(masks.size(), 1U);
    EXPECT_EQ(masks[0].allowed.size(), num_words);
  }
}

TEST_F(GrammarsTest, MaskTheSampledRowsOfEachRequest) {
  add(kOne, "[ab]c");
  add(kTwo, "de");
  add(kThree, "f");
  const std::vector<TokenId> drafts = spelled("bcx");
  const std::vector<TokenId> next = spelled("g");
  add({4}, "gh");
  add({5}, "a", "km");
  EXPECT_EQ(rows({5}, spelled("abcdkm")), (Rows{"*", "*", "*", "*", "*", "*", "a"})) << "these rows are filled again below";
  ScheduledRequest scheduled[] = {sampling_row({9}), sampling_row(kTwo), sampling_row(kOne, drafts), sampling_row(kThree),
                                  sampling_row({4}, next)};
  scheduled[3].samples = false;
  StepPlan plan;
  plan.scheduled = scheduled;
  for (int round = 0; round < 2; ++round) {
    const auto masks = grammars_.masks(plan);
    ASSERT_EQ(masks.size(), 3U);
    EXPECT_EQ(masks[0].id, kTwo);
    ASSERT_EQ(masks[0].allowed.size(), kMaskWords);
    EXPECT_EQ(letters_of(masks[0], 0), "d");
    EXPECT_EQ(masks[1].id, kOne);
    ASSERT_EQ(masks[1].allowed.size(), 4 * kMaskWords);
    EXPECT_EQ(letters_of(masks[1], 0), "ab");
    EXPECT_EQ(letters_of(masks[1], 1), "c");
    EXPECT_EQ(letters_of(masks[1], 2), "") << "the grammar is over";
    EXPECT_EQ(masks[1].allowed[2 * kMaskWords + kEos / 32] >> kEos % 32 & 1U, 1U) << "and allows its end";
    EXPECT_TRUE(std::ranges::all_of(masks[1].allowed.last(kMaskWords), [](std::uint32_t word) { return word == 0; }))
        << "a row after a draft token that does not fit allows no token";
    EXPECT_EQ(masks[2].id, RequestId{4});
    ASSERT_EQ(masks[2].allowed.size(), 2 * kMaskWords);
    EXPECT_EQ(letters_of(masks[2], 0), "g");
    EXPECT_EQ(letters_of(masks[2], 1), "h");
  }
}

TEST_F(GrammarsTest, MaskTheDraftTokensThatTheWorkerKeeps) {
  add(kOne, "abc");
  grammars_.expect(kOne, spelled("ab"));
  grammars_.expect({9}, spelled("ab"));
  EXPECT_EQ(rows(kOne, {-1, -1}), (Rows{"a", "b", "c"}));
  EXPECT_EQ(rows(kOne, {-1}), (Rows{"a", "b"}));
  EXPECT_EQ(rows(kOne, {-1, -1, -1}), (Rows{"a", "b", "c"})) << "the worker keeps two";
  EXPECT_EQ(rows(kOne, spelled("x")), (Rows{"a", ""})) << "draft tokens in the plan";
  EXPECT_EQ(rows(kOne, {0}), (Rows{"a", ""})) << "token 0 is no placeholder";
  grammars_.expect(kOne, spelled("a"));
  EXPECT_EQ(rows(kOne, {-1, -1}), (Rows{"a", "b"}));
  EXPECT_EQ(grammars_.count_valid(kOne, spelled("abx")), 2U);
}

TEST_F(GrammarsTest, BeginAfterTheirMarker) {
  add(kOne, "ab", "km");
  EXPECT_EQ(rows(kOne), Rows{}) << "every token is allowed";
  EXPECT_EQ(rows(kOne, spelled("xy")), Rows{});
  EXPECT_EQ(rows(kOne, spelled("kma")), (Rows{"*", "*", "a", "b"}));
  EXPECT_EQ(rows(kOne, spelled("xkm")), (Rows{"*", "*", "*", "a"}));
  EXPECT_TRUE(advance(kOne, "m"));
  EXPECT_TRUE(advance(kOne, "mk"));
  EXPECT_EQ(rows(kOne, spelled("m")), (Rows{"*", "a"})) << "half of the marker is known";
  EXPECT_EQ(rows(kOne, spelled("k")), Rows{});
  EXPECT_TRUE(advance(kOne, "mkm"));
  EXPECT_EQ(rows(kOne), Rows{"a"});
  EXPECT_TRUE(advance(kOne, "mkma"));
  EXPECT_EQ(rows(kOne), Rows{"b"});
  EXPECT_FALSE(advance(kOne, "mkmax"));
}

TEST_F(GrammarsTest, AMarkerDoesNotBeginInThePrompt) {
  add(kOne, "a", "km");
  EXPECT_FALSE(begins(kOne, {'m'}, 'k'));
  EXPECT_EQ(rows(kOne), Rows{});
  add(kTwo, "a", "kmn");
  EXPECT_FALSE(begins(kTwo, {'m'}, 'k'));
  EXPECT_EQ(rows(kTwo, spelled("n")), Rows{});
  EXPECT_FALSE(begins(kTwo, spelled("mk")));
  EXPECT_EQ(rows(kTwo, spelled("mn")), (Rows{"*", "*", "a"}));
}

TEST_F(GrammarsTest, CountTokensAfterTheMarkerIfAllComeTogether) {
  for (const auto& [outputs, num_new, next] :
       {std::tuple("xkma", 4U, "b"), std::tuple("xkma", 2U, "b"), std::tuple("km", 2U, "a"), std::tuple("kmab", 4U, "c")}) {
    SCOPED_TRACE(outputs);
    add(kOne, "abc", "km");
    const std::string before(outputs, std::string(outputs).size() - num_new);
    EXPECT_TRUE(advance(kOne, before, before.size()));
    EXPECT_TRUE(advance(kOne, outputs, num_new));
    EXPECT_EQ(rows(kOne), Rows{next});
    EXPECT_FALSE(advance(kOne, std::string(outputs) + "x"));
    grammars_.remove(kOne);
  }
}

TEST_F(GrammarsTest, AcceptTheEndOnceTheyAreOver) {
  add(kOne, "a");
  EXPECT_TRUE(advance(kOne, "a"));
  EXPECT_TRUE(advance(kOne, std::vector<TokenId>{'a', kEos, kEos}, 2));
  add(kTwo, "ab");
  EXPECT_TRUE(advance(kTwo, "a"));
  EXPECT_FALSE(advance(kTwo, std::vector<TokenId>{'a', kEos}, 1)) << "the answer is not complete";
  EXPECT_FALSE(begins({9}, {'a'})) << "the request has no grammar";
}

TEST_F(GrammarsTest, AFailedGrammarHasNoMaskAndIsReported) {
  add(kOne, "ab");
  add(kTwo, "cd");
  EXPECT_FALSE(advance(kOne, "x"));
  EXPECT_EQ(rows(kOne), Rows{});
  EXPECT_EQ(rows(kTwo), Rows{"c"});
  const auto failures = grammars_.collect();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].id, kOne);
  EXPECT_EQ(failures[0].error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(failures[0].error.field, "structured_output");
  EXPECT_EQ(failures[0].error.remedy, "send a simpler grammar");
}

TEST_F(GrammarsTest, AForkContinuesSeparatelyFromTheEndOfTheOutputs) {
  EXPECT_FALSE(grammars_.fork(kOne, kTwo, 0)) << "the parent has no grammar";
  add(kOne, "ab[cd]e", "k");
  EXPECT_TRUE(advance(kOne, "k"));
  EXPECT_TRUE(advance(kOne, "kab", 2));
  EXPECT_FALSE(grammars_.fork(kOne, kTwo, 2));
  EXPECT_FALSE(grammars_.fork(kOne, kTwo, 4));
  ASSERT_TRUE(grammars_.fork(kOne, kTwo, 3));
  EXPECT_TRUE(grammars_.ready(kTwo));
  EXPECT_EQ(rows(kTwo), Rows{"cd"});
  EXPECT_TRUE(advance(kTwo, "kabd"));
  EXPECT_EQ(rows(kTwo), Rows{"e"});
  EXPECT_EQ(rows(kOne), Rows{"cd"});
  grammars_.remove(kOne);
  EXPECT_EQ(rows(kTwo), Rows{"e"});
  EXPECT_FALSE(grammars_.is_compiling());
}

TEST_F(GrammarsTest, AForkKnowsTheBeginningOfItsMarker) {
  add(kOne, "ab", "km");
  EXPECT_TRUE(advance(kOne, "k"));
  ASSERT_TRUE(grammars_.fork(kOne, kTwo, 1));
  EXPECT_EQ(rows(kTwo, spelled("m")), (Rows{"*", "a"}));
  EXPECT_TRUE(advance(kTwo, "kma", 2));
  EXPECT_EQ(rows(kTwo), Rows{"b"});
  ASSERT_TRUE(grammars_.fork(kTwo, kThree, 3));
  EXPECT_TRUE(advance(kThree, "kmab"));
  EXPECT_EQ(rows(kThree), Rows{""});
}

TEST_F(GrammarsTest, AForkOfARequestWithoutACompiledGrammarWaitsForASeparateOne) {
  grammars_.add(kOne, regex_after("ab"), true);
  ASSERT_TRUE(grammars_.fork(kOne, kTwo, 0));
  EXPECT_FALSE(grammars_.ready(kTwo));
  grammars_.remove(kOne);
  EXPECT_TRUE(grammars_.is_compiling());
  num_compiled_.acquire();
  while (!grammars_.ready(kTwo)) (void)grammars_.collect();
  EXPECT_FALSE(grammars_.is_compiling());
  EXPECT_TRUE(advance(kTwo, "a"));
  grammars_.restart(kTwo);
  EXPECT_EQ(rows(kTwo), Rows{"a"}) << "the child of a session is a session";
}

TEST_F(GrammarsTest, BeamsAdvanceByTheChosenTokenOnly) {
  grammars_.add_beam(kOne, regex_after("[ab]c"));
  EXPECT_TRUE(collect().empty());
  EXPECT_FALSE(begins(kOne, {'a'}));
  EXPECT_TRUE(grammars_.fork(kOne, kThree, 77));
  EXPECT_FALSE(grammars_.ready(kThree)) << "follow() makes the grammar of a beam";
  grammars_.follow(kOne, kTwo, 'b');
  EXPECT_EQ(rows(kOne), Rows{"ab"});
  EXPECT_EQ(rows(kTwo), Rows{"c"});
  grammars_.follow(kTwo, kThree, 'c');
  EXPECT_EQ(rows(kThree), Rows{""});
  grammars_.follow(kThree, {4}, kEos);
  EXPECT_EQ(rows({4}), Rows{""}) << "a grammar that is over stays over";
  EXPECT_TRUE(grammars_.fork(kTwo, {5}, 0)) << "a beam that follows another one is a beam";
}

TEST_F(GrammarsTest, BeamsBeginAfterTheirMarker) {
  grammars_.add_beam(kOne, regex_after("ab", "km"));
  EXPECT_TRUE(collect().empty());
  RequestId last = kOne;
  const auto follow = [&](char token) {
    const RequestId next{last.value + 1};
    grammars_.follow(last, next, token);
    last = next;
    return rows(next);
  };
  EXPECT_EQ(follow('m'), Rows{});
  EXPECT_EQ(follow('k'), Rows{});
  EXPECT_EQ(rows(last, spelled("m")), (Rows{"*", "a"}));
  EXPECT_EQ(follow('k'), Rows{});
  EXPECT_EQ(follow('m'), Rows{"a"});
  EXPECT_EQ(follow('a'), Rows{"b"});
}

TEST_F(GrammarsTest, ASessionRestartsForEachAnswer) {
  add(kOne, "ab", "k", true);
  for (int answer = 0; answer < 3; ++answer) {
    EXPECT_EQ(rows(kOne), Rows{}) << "the marker comes first";
    EXPECT_TRUE(advance(kOne, "kab", 3));
    EXPECT_EQ(rows(kOne), Rows{""});
    grammars_.restart(kOne);
  }
  add(kTwo, "ab", "", true);
  EXPECT_TRUE(advance(kTwo, "ab", 2));
  ASSERT_TRUE(grammars_.fork(kTwo, kThree, 2));
  for (const RequestId id : {kTwo, kThree}) {
    grammars_.restart(id);
    EXPECT_EQ(rows(id), Rows{"a"});
  }
}

}  // namespace
}  // namespace quire
