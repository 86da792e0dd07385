// The composite connector beside what vLLM's MultiConnector was recorded to do (tools/record_composite_connector.py), beside a naive model,
// and in a core with two offloading connectors.
#include "core/connect/composite_connector.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "base/random.h"
#include "core/connect/offload_connector.h"
#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

// Answers what the test says, and remembers what it was told.
class ToldMember final : public Connector {
 public:
  ExternalMatch answer{.num_tokens = 0, .load_async = false};
  bool keeps = false, resets = true;
  std::uint32_t num_asked = 0;
  std::string told;
  std::vector<std::uint64_t> completions, sent_requests;
  std::vector<Transfer> plans;  // for the next plan

  std::uint32_t local = 0, spoiled_tokens = 0, num_forgotten = 0, num_outputs = 0;
  std::vector<TierMatch> there;  // what it would find
  bool knows = true;

  ExternalMatch match(const RequestView& /*request*/, std::uint32_t num_local_tokens) override {
    ++num_asked;
    local = num_local_tokens;
    return answer;
  }
  void allocated(const RequestView& /*request*/, GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    told = fmt::format("{}:{}", blocks[0].size(), num_external_tokens);
  }
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return keeps; }
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    for (const Transfer& transfer : std::exchange(plans, {})) transfers.add(transfer);
  }
  void completed(const TransferCompletion& completion) override { completions.push_back(completion.transfer.value); }
  void sent(RequestId request) override { sent_requests.push_back(request.value); }
  void spoiled(const RequestView& /*request*/, std::uint32_t num_good_tokens) override { spoiled_tokens = num_good_tokens; }
  bool peek(const RequestView& /*request*/, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) override {
    local = num_local_tokens;
    matches.insert(matches.end(), there.begin(), there.end());
    return knows;
  }
  void forget_blocks(const RequestView& /*request*/) override { ++num_forgotten; }
  void step_output() override { ++num_outputs; }
  bool reset() override { return resets; }
};

class ToldComposite {
 public:
  explicit ToldComposite(std::size_t count, CompositeChoice choice = CompositeChoice::first)
      : members_of(count), connector(given(members_of), choice) {}

  static std::vector<CompositeMember> given(std::vector<std::shared_ptr<ToldMember>>& members) {
    std::vector<CompositeMember> given;
    for (auto& member : members) given.push_back({.connector = member = std::make_shared<ToldMember>(), .tier = std::nullopt});
    return given;
  }
  static RequestView request(std::uint64_t id) {
    RequestView view;
    view.id = RequestId{id};
    return view;
  }
  std::string allocated(std::uint64_t id, std::size_t num_blocks, std::uint32_t num_external) {
    const std::vector<BlockId> blocks(num_blocks, BlockId{1});
    const std::span<const BlockId> groups[] = {blocks};
    connector.allocated(request(id), groups, num_external);
    std::vector<std::string> told;
    for (const auto& member : members_of) told.push_back(member->told);
    return fmt::format("{}", fmt::join(told, " "));
  }

  std::vector<std::shared_ptr<ToldMember>> members_of;
  CompositeConnector connector;
};

ExternalMatch parse_answer(const std::string& word) {
  if (word == "?") return {.num_tokens = std::nullopt, .load_async = false};
  return {.num_tokens = static_cast<std::uint32_t>(std::stoul(word)), .load_async = word.ends_with('a')};
}

std::string answer_text(const ExternalMatch& match) {
  return match.num_tokens ? fmt::format("{}{}", *match.num_tokens, match.load_async ? 'a' : 's') : "?";
}

std::string replay(ToldComposite& composite, std::istream& words) {
  std::string verb;
  std::uint64_t id = 0;
  words >> verb;
  if (verb != "reset") words >> id;
  std::string word;
  if (verb == "match") {
    std::uint32_t local = 0;
    words >> local;
    for (const auto& member : composite.members_of) words >> word, member->answer = parse_answer(word), member->num_asked = 0;
    const ExternalMatch match = composite.connector.match(ToldComposite::request(id), local);
    std::uint32_t num_asked = 0;
    for (const auto& member : composite.members_of) num_asked += member->num_asked;
    return fmt::format("{} {}", num_asked, answer_text(match));
  }
  if (verb == "allocated") {
    std::size_t num_blocks = 0;
    std::uint32_t num_external = 0;
    words >> num_blocks >> num_external;
    return composite.allocated(id, num_blocks, num_external);
  }
  if (verb == "finished") {
    int count = 0;
    for (const auto& member : composite.members_of) words >> word, member->keeps = word == "1", count += member->keeps ? 1 : 0;
    return fmt::format("{:d} {}", static_cast<int>(composite.connector.finished(ToldComposite::request(id), {})), count);
  }
  for (const auto& member : composite.members_of) words >> word, member->resets = word == "1";
  return fmt::format("{:d}", static_cast<int>(composite.connector.reset()));
}

// The first has the beginning, the last the end, and the one between them nothing.
TEST(CompositeConnector, WhereNobodyHasAnythingNothingIsLoaded) {
  for (const CompositeChoice choice : {CompositeChoice::first, CompositeChoice::longest, CompositeChoice::stacked}) {
    for (const bool load_async : {false, true}) {
      ToldComposite c(2, choice);
      for (const auto& member : c.members_of) member->answer = {.num_tokens = 0, .load_async = load_async};
      const ExternalMatch match = c.connector.match(ToldComposite::request(1), 4);
      EXPECT_EQ(match.num_tokens, 0U);
      EXPECT_FALSE(match.load_async);
      EXPECT_EQ(c.allocated(1, 3, 0), "0:0 0:0");
    }
  }
}

TEST(CompositeConnector, StackedEachLoadsWhatItHasBehindTheOthers) {
  ToldComposite composite(3, CompositeChoice::stacked);
  composite.members_of[0]->answer = {.num_tokens = 8, .load_async = true};
  composite.members_of[2]->answer = {.num_tokens = 16, .load_async = true};
  EXPECT_EQ(answer_text(composite.connector.match(ToldComposite::request(1), 4)), "24a");
  EXPECT_EQ(composite.members_of[0]->local, 4U);
  EXPECT_EQ(composite.members_of[2]->local, 12U);
  EXPECT_EQ(composite.members_of[1]->local, 28U) << "asked again behind both";
  EXPECT_EQ(composite.allocated(1, 9, 24), "9:8 0:0 9:16");
  EXPECT_EQ(composite.allocated(1, 9, 0), "0:0 0:0 0:0");
  composite.connector.finished(ToldComposite::request(1), {});
  EXPECT_EQ(composite.connector.num_tracked(), 0U);
}

TEST(CompositeConnector, StackedNobodyAnswersBeforeAllKnow) {
  ToldComposite composite(2, CompositeChoice::stacked);
  composite.members_of[0]->answer = {.num_tokens = 8, .load_async = true};
  composite.members_of[1]->answer = {.num_tokens = std::nullopt, .load_async = false};
  EXPECT_EQ(answer_text(composite.connector.match(ToldComposite::request(1), 0)), "?");
  composite.members_of[1]->answer = {.num_tokens = 4, .load_async = false};
  EXPECT_EQ(answer_text(composite.connector.match(ToldComposite::request(1), 0)), "8a") << "one way of loading for a request";
  EXPECT_EQ(composite.allocated(1, 2, 8), "2:8 0:0");
}

// What would be found: tokens, whether they are waited for, and where.
std::string peeked(ToldComposite& composite, std::uint32_t num_local_tokens) {
  std::vector<TierMatch> matches;
  if (!composite.connector.peek(ToldComposite::request(1), num_local_tokens, matches)) return "?";
  std::string text;
  for (const TierMatch& match : matches) text += fmt::format("{}{}@{} ", match.num_tokens, match.load_async ? 'a' : 's', match.tier);
  return text;
}

TEST(CompositeConnector, WhatIsLookedAtIsWhatWouldBeTaken) {
  ToldComposite first(3);
  EXPECT_EQ(peeked(first, 4), "");
  first.members_of[0]->there = {{.tier = 1, .num_tokens = 0, .load_async = true}};
  first.members_of[1]->there = {{.tier = 2, .num_tokens = 1, .load_async = true}, {.tier = 3, .num_tokens = 7, .load_async = true}};
  first.members_of[2]->there = {{.tier = 4, .num_tokens = 90, .load_async = true}};
  EXPECT_EQ(peeked(first, 4), "1a@2 7a@3 ") << "the first that has something";
  first.members_of[2]->knows = false;
  EXPECT_EQ(peeked(first, 4), "?");

  ToldComposite stacked(3, CompositeChoice::stacked);
  stacked.members_of[0]->there = {{.tier = 1, .num_tokens = 8, .load_async = true}};
  stacked.members_of[1]->there = {{.tier = 2, .num_tokens = 16, .load_async = false}};
  stacked.members_of[2]->there = {{.tier = 3, .num_tokens = 32, .load_async = true}};
  EXPECT_EQ(peeked(stacked, 4), "8a@1 32a@3 ") << "not one that the step would wait for, behind one it does not";
  EXPECT_EQ(stacked.members_of[2]->local, 12U) << "behind what the others have";
  stacked.members_of[0]->there.clear();
  EXPECT_EQ(peeked(stacked, 4), "16s@2 ");
  stacked.members_of[1]->knows = false;
  EXPECT_EQ(peeked(stacked, 4), "?");
}

TEST(CompositeConnector, AllHearWhoseBlocksAreForgotten) {
  ToldComposite composite(3);
  composite.connector.forget_blocks(ToldComposite::request(1));
  for (const auto& member : composite.members_of) EXPECT_EQ(member->num_forgotten, 1U);
}

TEST(CompositeConnector, StackedWhoHasNoPartIsToldOfNoBlocks) {
  ToldComposite composite(3, CompositeChoice::stacked);
  EXPECT_EQ(composite.allocated(9, 4, 0), "0:0 0:0 0:0") << "nobody was asked";
  composite.members_of[1]->answer = {.num_tokens = 16, .load_async = false};
  EXPECT_EQ(composite.connector.match(ToldComposite::request(1), 0).num_tokens, 16U);
  EXPECT_EQ(composite.allocated(1, 4, 10), "0:0 4:10 0:0") << "no more than was allocated";
}

TEST(CompositeConnector, AllHearWhatIsSpoiled) {
  ToldComposite composite(2);
  composite.connector.spoiled(ToldComposite::request(7), 12);
  for (const auto& member : composite.members_of) EXPECT_EQ(member->spoiled_tokens, 12U);
}

TEST(CompositeConnector, AllHearThatAStepsResultsAreTaken) {
  ToldComposite composite(3);
  composite.connector.step_output();
  for (const auto& member : composite.members_of) EXPECT_EQ(member->num_outputs, 1U);
}

TEST(CompositeConnector, AnswersAndTellsAsVllmsDoes) {
  std::ifstream file("tests/golden/composite_connector.txt");
  ASSERT_TRUE(file) << "run it from the repository's root";
  std::unique_ptr<ToldComposite> composite;
  int num_calls = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    if (line.starts_with("new ")) {
      composite = std::make_unique<ToldComposite>(std::stoul(line.substr(4)));
      continue;
    }
    ASSERT_EQ(replay(*composite, words), line.substr(line.find("= ") + 2)) << line;
    ++num_calls;
  }
  EXPECT_EQ(num_calls, 1600);
}

TEST(CompositeConnector, TheLongestIsTheFirstOfTheLongest) {
  Random random(5);
  ToldComposite composite(4, CompositeChoice::longest);
  std::map<std::uint64_t, std::size_t> chosen;
  for (int call = 0; call < 3000; ++call) {
    const std::uint64_t id = random.below(5);
    std::vector<std::string> answers;
    for (const auto& member : composite.members_of) {
      const std::uint64_t draw = random.below(12);
      member->answer = parse_answer(draw == 11 ? "?" : fmt::format("{}{}", draw / 3 * 4, draw % 2 == 0 ? 'a' : 's'));
      answers.push_back(answer_text(member->answer));
    }
    const auto end = std::ranges::find(answers, "?");
    const auto most = std::max_element(answers.begin(), end, [](const auto& a, const auto& b) { return std::stoi(a) < std::stoi(b); });
    const bool finds = most != end && std::stoi(*most) > 0;
    if (finds) chosen[id] = static_cast<std::size_t>(most - answers.begin());
    const std::string wanted = end != answers.end() ? "?" : finds ? *most : "0s";
    ASSERT_EQ(answer_text(composite.connector.match(ToldComposite::request(id), 0)), wanted) << fmt::format("{}", fmt::join(answers, " "));
    if (end != answers.end()) continue;
    std::vector<std::string> told(4, "0:0");
    if (chosen.contains(id)) told[chosen[id]] = "6:4";
    ASSERT_EQ(composite.allocated(id, 6, 4), fmt::format("{}", fmt::join(told, " ")));
    if (!random.chance(0.2)) continue;
    composite.connector.finished(ToldComposite::request(id), {});
    chosen.erase(id);
  }
  for (std::uint64_t id = 0; id < 5; ++id) composite.connector.finished(ToldComposite::request(id), {});
  EXPECT_EQ(composite.connector.num_tracked(), 0U);
}

TEST(CompositeConnector, WhileOneDoesNotKnowNobodyIsChosenAnew) {
  ToldComposite composite(2, CompositeChoice::longest);
  composite.members_of[0]->answer = parse_answer("8a");
  composite.members_of[1]->answer = parse_answer("?");
  EXPECT_EQ(answer_text(composite.connector.match(ToldComposite::request(1), 0)), "?");
  composite.members_of[1]->answer = parse_answer("12s");
  EXPECT_EQ(answer_text(composite.connector.match(ToldComposite::request(1), 0)), "12s");
  EXPECT_EQ(composite.allocated(1, 3, 12), "0:0 3:12");
}

class ListedTransfers final : public TransferList {
 public:
  std::optional<TransferId> add(const Transfer& transfer) override {
    if (transfers.size() == most) return std::nullopt;
    transfers.push_back(transfer);
    return TransferId{transfers.size()};
  }
  std::size_t most = 10;
  std::vector<Transfer> transfers;
};

TEST(CompositeConnector, ATransferIsOfItsMembersTierAndItsEndIsToldToItsMember) {
  const auto own = std::make_shared<ToldMember>();
  const auto marked = std::make_shared<ToldMember>();
  CompositeConnector composite({{.connector = own, .tier = std::nullopt}, {.connector = marked, .tier = 7}});
  Transfer transfer;
  transfer.tier = 3;
  own->plans = marked->plans = {transfer};
  ListedTransfers list;
  composite.plan_transfers({}, list);
  ASSERT_EQ(list.transfers.size(), 2U);
  EXPECT_EQ(list.transfers[0].tier, 3U);
  EXPECT_EQ(list.transfers[1].tier, 7U);
  EXPECT_EQ(composite.num_tracked(), 2U);
  composite.completed({.transfer = TransferId{2}});
  EXPECT_EQ(own->completions, std::vector<std::uint64_t>{});
  EXPECT_EQ(marked->completions, std::vector<std::uint64_t>{2});
  composite.completed({.transfer = TransferId{2}});
  EXPECT_EQ(marked->completions.size(), 1U) << "an end is told once";
  composite.completed({.transfer = TransferId{1}});
  EXPECT_EQ(composite.num_tracked(), 0U);
  composite.sent(RequestId{9});
  EXPECT_EQ(own->sent_requests, marked->sent_requests);
}

// A small tier above a large one. Nothing of it is found in the cache, so the tiers are asked.
struct TwoTiers {
  TwoTiers(std::uint64_t upper_blocks, CompositeChoice choice)
      : upper(OffloadConnector::create({.cpu_bytes_to_use = upper_blocks}, sync_config(), 1).value()),
        lower(OffloadConnector::create({.cpu_bytes_to_use = 64}, sync_config(), 1).value()),
        composite({{.connector = upper, .tier = 0}, {.connector = lower, .tier = 1}}, choice),
        d(sync_config(), {.connector = &composite}) {}

  void run(std::uint64_t id, std::uint64_t prompt, std::uint32_t num_tokens) {
    const Tokens tokens = CoreDriver::prompt(prompt, num_tokens);
    d.add(CoreDriver::request(id, tokens, 2));
    num_loaded = {0, 0};
    for (int i = 0; i < 50 && (d.core->has_work() || !open.empty() || d.core->counters().num_awaiting_transfers > 0); ++i) {
      for (const Transfer& transfer : d.plan().transfers) {
        open.push_back({.transfer = transfer.id});
        if (transfer.direction == TransferDirection::load) num_loaded[transfer.tier] += transfer.blocks.size();
      }
      const std::vector<TransferCompletion> over = std::exchange(open, {});
      d.apply({}, {.completions = over});
      composite.check_invariants();
      for (const auto& tier : {upper, lower}) tier->check_invariants();
    }
    EXPECT_TRUE(d.core->all_blocks_free());
    EXPECT_EQ(composite.num_tracked() + upper->num_tracked() + lower->num_tracked(), 0U);
    EXPECT_TRUE(d.core->reset_prefix_cache().value());
  }

  std::shared_ptr<OffloadConnector> upper, lower;
  CompositeConnector composite;
  CoreDriver d;
  std::vector<TransferCompletion> open;
  std::array<std::size_t, 2> num_loaded{};
};

using Loaded = std::array<std::size_t, 2>;

TEST(CompositeConnector, ARequestLoadsFromTheFirstTierThatHasSomething) {
  TwoTiers tiers(64, CompositeChoice::first);
  tiers.run(1, 1, 17);
  EXPECT_EQ(tiers.num_loaded, (Loaded{0, 0}));
  EXPECT_EQ(tiers.upper->counters().num_stored, 4U);
  EXPECT_EQ(tiers.lower->counters().num_stored, 4U) << "all store";
  tiers.run(2, 1, 17);
  EXPECT_EQ(tiers.num_loaded, (Loaded{4, 0}));
  EXPECT_TRUE(tiers.upper->reset());
  tiers.run(3, 1, 17);
  EXPECT_EQ(tiers.num_loaded, (Loaded{0, 4}));
  tiers.run(4, 1, 17);
  EXPECT_EQ(tiers.num_loaded, (Loaded{4, 0})) << "what the lower tier gave was stored in the upper one";
}

TEST(CompositeConnector, ARequestLoadsFromTheTierThatHasMore) {
  for (const CompositeChoice choice : {CompositeChoice::first, CompositeChoice::longest}) {
    TwoTiers tiers(5, choice);
    tiers.run(1, 1, 17);
    tiers.run(2, 1, 33);
    tiers.run(3, 1, 33);
    EXPECT_EQ(tiers.num_loaded, choice == CompositeChoice::first ? (Loaded{1, 0}) : (Loaded{0, 8}))
        << "the second prompt has left the upper tier the first block of four";
  }
}

}  // namespace
}  // namespace quire::test
