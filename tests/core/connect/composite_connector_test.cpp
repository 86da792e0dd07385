// Compares the composite connector with a record of vLLM's MultiConnector (tools/record/composite_connector.py) and with a naive model, and
// tests it in a core with two offloading connectors.
#include "core/connect/composite_connector.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <sstream>

#include "base/random.h"
#include "core/connect/offload_connector.h"
#include "core/schedule/core_driver.h"
#include "support/recording.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

class ScriptedComposite {
 public:
  explicit ScriptedComposite(std::size_t count, CompositeChoice choice = CompositeChoice::first)
      : members_of(count), connector(scripted_members(members_of), choice) {}

  static std::vector<CompositeMember> scripted_members(std::vector<std::shared_ptr<ScriptedConnector>>& members) {
    std::vector<CompositeMember> given;
    for (auto& member : members) {
      member = std::make_shared<ScriptedConnector>();
      member->found.emplace();  // peek() finds nothing
      given.push_back({.connector = member, .tier = std::nullopt});
    }
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
    std::vector<std::string> allocations;
    for (const auto& member : members_of) allocations.push_back(fmt::format("{}:{}", member->allocation.first, member->allocation.second));
    return fmt::format("{}", fmt::join(allocations, " "));
  }

  std::vector<std::shared_ptr<ScriptedConnector>> members_of;
  CompositeConnector connector;
};

ExternalMatch parse_answer(const std::string& word) {
  if (word == "?") return {.num_tokens = std::nullopt, .load_async = false};
  return {.num_tokens = static_cast<std::uint32_t>(std::stoul(word)), .load_async = word.ends_with('a')};
}

std::string answer_text(const ExternalMatch& match) {
  return match.num_tokens ? fmt::format("{}{}", *match.num_tokens, match.load_async ? 'a' : 's') : "?";
}

std::string replay(ScriptedComposite& composite, std::istream& words) {
  std::string verb;
  std::uint64_t id = 0;
  words >> verb;
  if (verb != "reset") words >> id;
  std::string word;
  if (verb == "match") {
    std::uint32_t local = 0;
    words >> local;
    for (const auto& member : composite.members_of) words >> word, member->answer = parse_answer(word), member->asked.clear();
    const ExternalMatch match = composite.connector.match(ScriptedComposite::request(id), local);
    std::size_t num_asked = 0;
    for (const auto& member : composite.members_of) num_asked += member->asked.size();
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
    for (const auto& member : composite.members_of) words >> word, member->keeps_all = word == "1", count += member->keeps_all ? 1 : 0;
    return fmt::format("{:d} {}", static_cast<int>(composite.connector.finished(ScriptedComposite::request(id), {})), count);
  }
  for (const auto& member : composite.members_of) words >> word, member->resets = word == "1";
  return fmt::format("{:d}", static_cast<int>(composite.connector.reset()));
}

TEST(CompositeConnector, LoadsNothingWhenNoMemberHasBlocks) {
  for (const CompositeChoice choice : {CompositeChoice::first, CompositeChoice::longest, CompositeChoice::stacked}) {
    for (const bool load_async : {false, true}) {
      ScriptedComposite c(2, choice);
      for (const auto& member : c.members_of) member->answer = {.num_tokens = 0, .load_async = load_async};
      const ExternalMatch match = c.connector.match(ScriptedComposite::request(1), 4);
      EXPECT_EQ(match.num_tokens, 0U);
      EXPECT_FALSE(match.load_async);
      EXPECT_EQ(c.allocated(1, 3, 0), "0:0 0:0");
    }
  }
}

// The first member has the beginning, the last one has the end and the middle one has nothing.
TEST(CompositeConnector, StackedMembersEachLoadTheirPartOfThePrompt) {
  ScriptedComposite composite(3, CompositeChoice::stacked);
  composite.members_of[0]->answer = {.num_tokens = 8, .load_async = true};
  composite.members_of[2]->answer = {.num_tokens = 16, .load_async = true};
  EXPECT_EQ(answer_text(composite.connector.match(ScriptedComposite::request(1), 4)), "24a");
  EXPECT_EQ(composite.members_of[0]->local, 4U);
  EXPECT_EQ(composite.members_of[2]->local, 12U);
  EXPECT_EQ(composite.members_of[1]->local, 28U) << "asked again after both parts";
  EXPECT_EQ(composite.allocated(1, 9, 24), "9:8 0:0 9:16");
  EXPECT_EQ(composite.allocated(1, 9, 0), "0:0 0:0 0:0");
  composite.connector.finished(ScriptedComposite::request(1), {});
  EXPECT_EQ(composite.connector.num_tracked(), 0U);
}

TEST(CompositeConnector, StackedMatchIsUnknownUntilAllMembersKnow) {
  ScriptedComposite composite(2, CompositeChoice::stacked);
  composite.members_of[0]->answer = {.num_tokens = 8, .load_async = true};
  composite.members_of[1]->answer = {.num_tokens = std::nullopt, .load_async = false};
  EXPECT_EQ(answer_text(composite.connector.match(ScriptedComposite::request(1), 0)), "?");
  composite.members_of[1]->answer = {.num_tokens = 4, .load_async = false};
  EXPECT_EQ(answer_text(composite.connector.match(ScriptedComposite::request(1), 0)), "8a")
      << "a request loads either synchronously or asynchronously";
  EXPECT_EQ(composite.allocated(1, 2, 8), "2:8 0:0");
}

// Returns the matches of peek(): tokens, asynchronous or synchronous, and the tier.
std::string peeked(ScriptedComposite& composite, std::uint32_t num_local_tokens) {
  std::vector<TierMatch> matches;
  if (!composite.connector.peek(ScriptedComposite::request(1), num_local_tokens, matches)) return "?";
  std::string text;
  for (const TierMatch& match : matches) text += fmt::format("{}{}@{} ", match.num_tokens, match.load_async ? 'a' : 's', match.tier);
  return text;
}

TEST(CompositeConnector, PeekReportsWhatMatchWouldTake) {
  ScriptedComposite first(3);
  EXPECT_EQ(peeked(first, 4), "");
  first.members_of[0]->found = {{.tier = 1, .num_tokens = 0, .load_async = true}};
  first.members_of[1]->found = {{.tier = 2, .num_tokens = 1, .load_async = true}, {.tier = 3, .num_tokens = 7, .load_async = true}};
  first.members_of[2]->found = {{.tier = 4, .num_tokens = 90, .load_async = true}};
  EXPECT_EQ(peeked(first, 4), "1a@2 7a@3 ") << "the first member that has tokens";
  first.members_of[2]->found.reset();
  EXPECT_EQ(peeked(first, 4), "?");

  ScriptedComposite stacked(3, CompositeChoice::stacked);
  stacked.members_of[0]->found = {{.tier = 1, .num_tokens = 8, .load_async = true}};
  stacked.members_of[1]->found = {{.tier = 2, .num_tokens = 16, .load_async = false}};
  stacked.members_of[2]->found = {{.tier = 3, .num_tokens = 32, .load_async = true}};
  EXPECT_EQ(peeked(stacked, 4), "8a@1 32a@3 ") << "a synchronous member does not follow an asynchronous one";
  EXPECT_EQ(stacked.members_of[2]->local, 12U) << "after the parts of the other members";
  stacked.members_of[0]->found->clear();
  EXPECT_EQ(peeked(stacked, 4), "16s@2 ");
  stacked.members_of[1]->found.reset();
  EXPECT_EQ(peeked(stacked, 4), "?");
}

TEST(CompositeConnector, ForwardsForgetBlocksToAllMembers) {
  ScriptedComposite composite(3);
  composite.connector.forget_blocks(ScriptedComposite::request(1));
  for (const auto& member : composite.members_of) EXPECT_EQ(member->num_logged("forget"), 1U);
}

TEST(CompositeConnector, StackedMemberWithoutAPartIsAllocatedNoBlocks) {
  ScriptedComposite composite(3, CompositeChoice::stacked);
  EXPECT_EQ(composite.allocated(9, 4, 0), "0:0 0:0 0:0") << "no member was matched";
  composite.members_of[1]->answer = {.num_tokens = 16, .load_async = false};
  EXPECT_EQ(composite.connector.match(ScriptedComposite::request(1), 0).num_tokens, 16U);
  EXPECT_EQ(composite.allocated(1, 4, 10), "0:0 4:10 0:0") << "the member loads no more than was allocated";
}

TEST(CompositeConnector, ForwardsInvalidatedBlocksToAllMembers) {
  ScriptedComposite composite(2);
  composite.connector.invalidated(ScriptedComposite::request(7), 12);
  for (const auto& member : composite.members_of) EXPECT_EQ(member->invalidated_after.begin()->second, 12U);
}

TEST(CompositeConnector, ForwardsStepOutputToAllMembers) {
  ScriptedComposite composite(3);
  composite.connector.step_output();
  for (const auto& member : composite.members_of) EXPECT_EQ(member->num_logged("step_output"), 1U);
}

TEST(CompositeConnector, MatchesTheRecordOfVllmsMultiConnector) {
  std::istringstream file = open_recording("tests/golden/composite_connector.txt.xz");
  ASSERT_TRUE(file) << "run it from the repository's root";
  std::unique_ptr<ScriptedComposite> composite;
  int num_calls = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    if (line.starts_with("new ")) {
      composite = std::make_unique<ScriptedComposite>(std::stoul(line.substr(4)));
      continue;
    }
    ASSERT_EQ(replay(*composite, words), line.substr(line.find("= ") + 2)) << line;
    ++num_calls;
  }
  EXPECT_EQ(num_calls, 1600);
}

TEST(CompositeConnector, ChoosesTheFirstOfTheLongestMatches) {
  Random random(5);
  ScriptedComposite composite(4, CompositeChoice::longest);
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
    ASSERT_EQ(answer_text(composite.connector.match(ScriptedComposite::request(id), 0)), wanted)
        << fmt::format("{}", fmt::join(answers, " "));
    if (end != answers.end()) continue;
    std::vector<std::string> allocations(4, "0:0");
    if (chosen.contains(id)) allocations[chosen[id]] = "6:4";
    ASSERT_EQ(composite.allocated(id, 6, 4), fmt::format("{}", fmt::join(allocations, " ")));
    if (!random.chance(0.2)) continue;
    composite.connector.finished(ScriptedComposite::request(id), {});
    chosen.erase(id);
  }
  for (std::uint64_t id = 0; id < 5; ++id) composite.connector.finished(ScriptedComposite::request(id), {});
  EXPECT_EQ(composite.connector.num_tracked(), 0U);
}

TEST(CompositeConnector, ChoosesNoMemberWhileOneDoesNotKnow) {
  ScriptedComposite composite(2, CompositeChoice::longest);
  composite.members_of[0]->answer = parse_answer("8a");
  composite.members_of[1]->answer = parse_answer("?");
  EXPECT_EQ(answer_text(composite.connector.match(ScriptedComposite::request(1), 0)), "?");
  composite.members_of[1]->answer = parse_answer("12s");
  EXPECT_EQ(answer_text(composite.connector.match(ScriptedComposite::request(1), 0)), "12s");
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

TEST(CompositeConnector, SetsTheTierOfTransfersAndReportsTheirEndToTheMember) {
  const auto own = std::make_shared<ScriptedConnector>();
  const auto marked = std::make_shared<ScriptedConnector>();
  CompositeConnector composite({{.connector = own, .tier = std::nullopt}, {.connector = marked, .tier = 7}});
  Transfer transfer;
  transfer.tier = 3;
  own->transfers = marked->transfers = {transfer};
  ListedTransfers list;
  composite.plan_transfers({}, list);
  ASSERT_EQ(list.transfers.size(), 2U);
  EXPECT_EQ(list.transfers[0].tier, 3U);
  EXPECT_EQ(list.transfers[1].tier, 7U);
  EXPECT_EQ(composite.num_tracked(), 2U);
  composite.completed({.transfer = TransferId{2}});
  EXPECT_EQ(own->over, std::vector<TransferId>{});
  EXPECT_EQ(marked->over, std::vector{TransferId{2}});
  composite.completed({.transfer = TransferId{2}});
  EXPECT_EQ(marked->over.size(), 1U) << "an end is reported once";
  composite.completed({.transfer = TransferId{1}});
  EXPECT_EQ(composite.num_tracked(), 0U);
  composite.sent(RequestId{9});
  EXPECT_EQ(own->sent_requests, marked->sent_requests);
}

// A small tier above a large one. The prefix cache is emptied after each run, so the tiers are asked.
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

TEST(CompositeConnector, LoadsFromTheFirstTierThatHasBlocks) {
  TwoTiers tiers(64, CompositeChoice::first);
  tiers.run(1, 1, 17);
  EXPECT_EQ(tiers.num_loaded, (Loaded{0, 0}));
  EXPECT_EQ(tiers.upper->counters().num_stored, 4U);
  EXPECT_EQ(tiers.lower->counters().num_stored, 4U) << "all tiers store";
  tiers.run(2, 1, 17);
  EXPECT_EQ(tiers.num_loaded, (Loaded{4, 0}));
  EXPECT_TRUE(tiers.upper->reset());
  tiers.run(3, 1, 17);
  EXPECT_EQ(tiers.num_loaded, (Loaded{0, 4}));
  tiers.run(4, 1, 17);
  EXPECT_EQ(tiers.num_loaded, (Loaded{4, 0})) << "blocks of the lower tier were stored in the upper tier";
}

TEST(CompositeConnector, LongestLoadsMoreThanFirst) {
  for (const CompositeChoice choice : {CompositeChoice::first, CompositeChoice::longest}) {
    TwoTiers tiers(5, choice);
    tiers.run(1, 1, 17);
    tiers.run(2, 1, 33);
    tiers.run(3, 1, 33);
    EXPECT_EQ(tiers.num_loaded, choice == CompositeChoice::first ? (Loaded{1, 0}) : (Loaded{0, 8}))
        << "the second prompt has evicted all but one block from the upper tier";
  }
}

}  // namespace
}  // namespace quire::test
