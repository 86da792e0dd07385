// The thread that compiles grammars: the order of its results, and which grammars it keeps.
#include "engine/requests/grammar_thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_nice.h"
#include "engine/spelling_model.h"

namespace quire {
namespace {

using GrammarKind = StructuredOutput::Kind;

std::shared_ptr<const StructuredOutput> grammar_of(GrammarKind kind, std::string text) {
  return std::make_shared<const StructuredOutput>(StructuredOutput{.kind = kind, .text = std::move(text)});
}

// Returns a grammar that allows "a" and is `num_bytes` long.
std::shared_ptr<const StructuredOutput> long_grammar(std::size_t num_bytes, char fill) {
  std::string text = "start: \"a\"\n// ";
  text.resize(num_bytes, fill);
  return grammar_of(GrammarKind::lark, std::move(text));
}

class GrammarThreadTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
    thread_.set_notify([this] {
      priority_ = getpriority(PRIO_PROCESS, 0);
      num_done_.release();
      if (stops_) may_continue_.acquire();
    });
  }
  // Waits for the results of `count` grammars.
  std::vector<GrammarThread::Compiled> wait(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) num_done_.acquire();
    return thread_.take();
  }
  // Compiles a grammar and returns a reference that ends when the thread drops it.
  std::weak_ptr<const StructuredOutput> compile(std::shared_ptr<const StructuredOutput> grammar) {
    std::weak_ptr<const StructuredOutput> watch = grammar;
    thread_.put({1}, std::move(grammar));
    const auto done = wait(1);
    EXPECT_EQ(done.size(), 1U);
    if (done.size() == 1 && !done[0].matcher) ADD_FAILURE() << done[0].matcher.error().to_string();
    return watch;
  }

  std::counting_semaphore<> num_done_{0}, may_continue_{0};
  bool stops_ = false;  // the thread waits for `may_continue_` after each grammar
  int priority_ = 0;    // nice value of the compiling thread
  GrammarThread thread_{spelling_model().tokenizer, kVocab};
};

bool allows(GrammarMatcher& matcher, char token) {
  std::vector<std::uint32_t> words((kVocab + 31) / 32);
  EXPECT_TRUE(matcher.fill(words));
  const auto index = static_cast<std::size_t>(token);
  return (words[index / 32] >> index % 32 & 1U) != 0;
}

TEST_F(GrammarThreadTest, ReturnsEachGrammarOnceInTheOrderOfTheRequests) {
  EXPECT_TRUE(thread_.take().empty());
  thread_.put({7}, grammar_of(GrammarKind::regex, "a"));
  thread_.put({5}, grammar_of(GrammarKind::regex, "("));
  thread_.put({6}, grammar_of(GrammarKind::regex, "b"));
  auto done = wait(3);
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[0].id, RequestId{7});
  EXPECT_EQ(done[1].id, RequestId{5});
  EXPECT_EQ(done[2].id, RequestId{6});
  EXPECT_TRUE(allows(*done[0].matcher, 'a'));
  EXPECT_EQ(done[1].matcher.error().field, "structured_output");
  EXPECT_TRUE(allows(*done[2].matcher, 'b'));
  EXPECT_FALSE(allows(*done[2].matcher, 'a'));
  EXPECT_TRUE(thread_.take().empty());
  EXPECT_GE(priority_, kBackgroundNice) << "compilation yields to computing threads";
}

TEST_F(GrammarThreadTest, NeedsNoGrammarToEnd) {
  const GrammarThread unused(spelling_model().tokenizer, kVocab);
}

TEST_F(GrammarThreadTest, CompilesAnEqualTextOfAnotherKindSeparately) {
  constexpr const char* kText = "start: \"a\"";
  thread_.put({1}, grammar_of(GrammarKind::regex, kText));
  thread_.put({2}, grammar_of(GrammarKind::lark, kText));
  thread_.put({3}, grammar_of(GrammarKind::regex, kText));
  auto done = wait(3);
  ASSERT_EQ(done.size(), 3U);
  for (const std::size_t regex : {0U, 2U}) {
    EXPECT_TRUE(allows(*done[regex].matcher, 's'));
    EXPECT_FALSE(allows(*done[regex].matcher, 'a'));
  }
  EXPECT_TRUE(allows(*done[1].matcher, 'a'));
  EXPECT_FALSE(allows(*done[1].matcher, 's'));
}

TEST_F(GrammarThreadTest, LeavesOutAForgottenGrammarThatIsStillQueued) {
  stops_ = true;
  thread_.put({1}, grammar_of(GrammarKind::regex, "a"));
  num_done_.acquire();
  thread_.put({2}, grammar_of(GrammarKind::regex, "b"));
  thread_.put({3}, grammar_of(GrammarKind::regex, "c"));
  thread_.forget({2});
  thread_.forget({9});
  may_continue_.release(2);
  const auto done = wait(1);
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].id, RequestId{1});
  EXPECT_EQ(done[1].id, RequestId{3});
}

TEST_F(GrammarThreadTest, KeepsTheMostRecentlyUsedGrammars) {
  std::vector<std::weak_ptr<const StructuredOutput>> kept;
  for (int i = 0; i < 64; ++i) kept.push_back(compile(grammar_of(GrammarKind::regex, "a{" + std::to_string(i + 1) + "}")));
  EXPECT_TRUE(std::ranges::none_of(kept, [](const auto& one) { return one.expired(); }));
  (void)compile(grammar_of(GrammarKind::regex, "a{1}"));
  (void)compile(grammar_of(GrammarKind::regex, "b"));
  EXPECT_FALSE(kept[0].expired()) << "it was used again";
  EXPECT_TRUE(kept[1].expired());
  EXPECT_FALSE(kept[2].expired());
}

TEST_F(GrammarThreadTest, KeepsGrammarsOfABoundedSize) {
  constexpr std::size_t kMiB = std::size_t{1} << 20U;
  const auto first = compile(long_grammar(4 * kMiB, 'x')), second = compile(long_grammar(4 * kMiB, 'y'));
  EXPECT_FALSE(first.expired()) << "both together have 8 MiB, which is the bound";
  const auto third = compile(long_grammar(100, 'x'));
  EXPECT_TRUE(first.expired());
  EXPECT_FALSE(second.expired());
  const auto fourth = compile(long_grammar(4 * kMiB - 100, 'z'));
  EXPECT_FALSE(second.expired()) << "the first one does not count any more";
  EXPECT_FALSE(third.expired());
  (void)compile(long_grammar(100, 'y'));
  EXPECT_TRUE(second.expired());
  EXPECT_FALSE(third.expired());
  EXPECT_FALSE(fourth.expired());
}

}  // namespace
}  // namespace quire
