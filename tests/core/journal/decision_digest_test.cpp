// Plans and outcomes that differ in one field have different digests.
#include "core/journal/decision_digest.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core/journal/mix.h"

namespace quire::test {
namespace {

struct Plan {
  Plan() {
    admitted[0].id = scheduled[0].id = deltas[0].id = {1};
    admitted[0].slot = scheduled[0].slot = deltas[0].slot = {2};
    admitted[0].tokens = tokens;
    deltas[0].blocks = transfers[0].blocks = blocks;
    transfers[0].places = places;
    scheduled[1].id = {7};
  }
  StepPlan plan() {
    StepPlan plan;
    plan.step = {5};
    plan.released = released;
    plan.admitted = admitted;
    plan.table_deltas = deltas;
    plan.copies = copies;
    plan.scheduled = scheduled;
    plan.finished = plan.preempted = ids;
    plan.num_common_prefix_blocks = numbers;
    plan.freed_encoder_outputs = names;
    plan.blocks_to_zero = blocks;
    plan.transfers = transfers;
    plan.fences = fences;
    return plan;
  }

  std::vector<Slot> released{{3}};
  std::vector<TokenId> tokens{1, 2, 3};
  std::vector<BlockId> blocks{{4}, {5}};
  std::vector<std::uint64_t> places{8, 9};
  std::vector<AdmittedRequest> admitted = std::vector<AdmittedRequest>(1);
  std::vector<BlockTableDelta> deltas = std::vector<BlockTableDelta>(1);
  std::vector<BlockCopy> copies = std::vector<BlockCopy>(1);
  std::vector<ScheduledRequest> scheduled = std::vector<ScheduledRequest>(2);
  std::vector<RequestId> ids{{1}, {2}};
  std::vector<std::uint32_t> numbers{1, 2};
  std::vector<std::string_view> names{"a"};
  std::vector<Transfer> transfers = std::vector<Transfer>(1);
  std::vector<TransferId> fences{{1}};
};

TEST(DecisionDigest, DiffersWhenAnyFieldOfAPlanDiffers) {
  std::set<std::uint64_t> known;
  const auto other = [&](auto&& change) {
    Plan parts;
    StepPlan plan = parts.plan();
    change(parts, plan);
    EXPECT_TRUE(known.insert(digest_of(plan)).second) << "change " << known.size();
  };
  other([](Plan&, StepPlan&) {});
  other([](Plan&, StepPlan& p) { ++p.step.value; });
  other([](Plan& a, StepPlan&) { ++a.released[0].value; });
  other([](Plan&, StepPlan& p) { p.released = {}; });
  other([](Plan& a, StepPlan&) { ++a.admitted[0].id.value; });
  other([](Plan& a, StepPlan&) { ++a.admitted[0].slot.value; });
  other([](Plan& a, StepPlan&) { ++a.admitted[0].num_prompt_tokens; });
  other([](Plan& a, StepPlan&) { a.admitted[0].tokens = {}; });
  other([](Plan& a, StepPlan&) { ++a.deltas[0].slot.value; });
  other([](Plan& a, StepPlan&) { ++a.deltas[0].group; });
  other([](Plan& a, StepPlan&) { ++a.deltas[0].id.value; });
  other([](Plan& a, StepPlan&) { a.deltas[0].update = TableUpdate::replace_one; });
  other([](Plan& a, StepPlan&) { ++a.deltas[0].index; });
  other([](Plan& a, StepPlan&) { a.deltas[0].blocks = a.deltas[0].blocks.first(1); });
  other([](Plan& a, StepPlan&) { ++a.copies[0].source.value; });
  other([](Plan& a, StepPlan&) { ++a.copies[0].destination.value; });
  other([](Plan& a, StepPlan&) { ++a.copies[0].id.value; });
  other([](Plan& a, StepPlan&) { ++a.copies[0].group; });
  other([](Plan& a, StepPlan&) { ++a.scheduled[0].id.value; });
  other([](Plan& a, StepPlan&) { ++a.scheduled[0].slot.value; });
  other([](Plan& a, StepPlan&) { ++a.scheduled[0].num_computed_tokens; });
  other([](Plan& a, StepPlan&) { ++a.scheduled[0].num_tokens; });
  other([](Plan& a, StepPlan&) { a.scheduled[0].samples = true; });
  other([](Plan& a, StepPlan&) { a.scheduled[0].pools = true; });
  other([](Plan& a, StepPlan&) { a.scheduled[0].kind = ScheduledKind::fresh; });
  other([](Plan& a, StepPlan&) { a.scheduled[0].kind = ScheduledKind::resumed; });
  other([](Plan& a, StepPlan&) { a.scheduled[0].send_all_tokens = true; });
  other([](Plan& a, StepPlan&) { --a.scheduled[0].num_output_tokens; });
  other([](Plan& a, StepPlan&) { a.scheduled[0].drafts = a.tokens; });
  other([](Plan& a, StepPlan&) { a.scheduled[0].new_tokens = a.tokens; });
  other([](Plan& a, StepPlan&) { a.scheduled[0].encoder_inputs = a.numbers; });
  other([](Plan& a, StepPlan&) { std::swap(a.scheduled[0], a.scheduled[1]); });
  other([](Plan&, StepPlan& p) { ++p.num_scheduled_tokens; });
  other([](Plan&, StepPlan& p) { p.finished = p.finished.first(1); });
  other([](Plan&, StepPlan& p) { p.preempted = p.preempted.first(1); });
  other([](Plan& a, StepPlan&) { ++a.numbers[1]; });
  other([](Plan& a, StepPlan&) { a.names[0] = "b"; });
  other([](Plan&, StepPlan& p) { p.blocks_to_zero = {}; });
  other([](Plan& a, StepPlan&) { ++a.transfers[0].id.value; });
  other([](Plan& a, StepPlan&) { ++a.transfers[0].request.value; });
  other([](Plan& a, StepPlan&) { a.transfers[0].direction = TransferDirection::store; });
  other([](Plan& a, StepPlan&) { a.transfers[0].need = TransferNeed::step; });
  other([](Plan& a, StepPlan&) { ++a.transfers[0].group; });
  other([](Plan& a, StepPlan&) { ++a.transfers[0].tier; });
  other([](Plan& a, StepPlan&) { ++a.places[1]; });
  other([](Plan& a, StepPlan&) { ++a.blocks[0].value; });
  other([](Plan& a, StepPlan&) { ++a.fences[0].value; });
  other([](Plan&, StepPlan& p) { p.has_structured_output = true; });
  other([](Plan&, StepPlan& p) { p.pending_structured_output = true; });
}

TEST(DecisionDigest, DiffersWhenAnyFieldOfAnOutcomeDiffers) {
  std::set<std::uint64_t> known;
  const auto other = [&](auto&& change) {
    std::vector<TokenId> tokens{1, 2};
    std::vector<RequestUpdate> updates(2);
    updates[0].id = {1};
    updates[0].tokens = tokens;
    updates[1].id = {2};
    std::vector<FirstAdmission> admissions{{.id = {1}, .num_cached_tokens = 4}};
    std::vector<RequestId> ids{{3}, {4}};
    std::vector<FinishedSet> sets{{.client_index = 1, .ids = ids}};
    StepOutcome outcome{};
    outcome.step = {5};
    outcome.updates = updates;
    outcome.first_admissions = admissions;
    outcome.finished_sets = sets;
    change(outcome, updates[0], tokens, admissions[0], ids);
    EXPECT_TRUE(known.insert(digest_of(outcome)).second) << "change " << known.size();
  };
  using Tokens = std::vector<TokenId>;
  using Ids = std::vector<RequestId>;
  other([](StepOutcome&, RequestUpdate&, Tokens&, FirstAdmission&, Ids&) {});
  other([](StepOutcome& o, RequestUpdate&, Tokens&, FirstAdmission&, Ids&) { ++o.step.value; });
  other([](StepOutcome& o, RequestUpdate&, Tokens&, FirstAdmission&, Ids& ids) { o.preempted = ids; });
  other([](StepOutcome& o, RequestUpdate&, Tokens&, FirstAdmission&, Ids& ids) { o.failed_loads = ids; });
  other([](StepOutcome& o, RequestUpdate&, Tokens&, FirstAdmission&, Ids& ids) { o.retired = ids; });
  other([](StepOutcome& o, RequestUpdate&, Tokens&, FirstAdmission&, Ids&) { o.finished_sets = {}; });
  other([](StepOutcome&, RequestUpdate&, Tokens&, FirstAdmission&, Ids& ids) { ++ids[1].value; });
  other([](StepOutcome&, RequestUpdate&, Tokens&, FirstAdmission& a, Ids&) { ++a.id.value; });
  other([](StepOutcome&, RequestUpdate&, Tokens&, FirstAdmission& a, Ids&) { ++a.num_cached_tokens; });
  other([](StepOutcome&, RequestUpdate&, Tokens& t, FirstAdmission&, Ids&) { ++t[1]; });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { u.tokens = u.tokens.first(1); });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { ++u.id.value; });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { ++u.client_index; });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { ++u.result_index; });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { u.finished = true; });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { u.status = RequestStatus::finished_error; });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { u.reason = FinishReason::abort; });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { u.stop_token = 0; });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { u.stop_token = 1; });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { u.session_waits = true; });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { ++u.num_cached_tokens; });
  other([](StepOutcome&, RequestUpdate& u, Tokens&, FirstAdmission&, Ids&) { ++u.num_external_computed_tokens; });
}

TEST(WordHasher, DistinguishesBytesByTheirLength) {
  std::set<std::uint64_t> known;
  const std::vector<std::uint8_t> zeros(40);
  for (std::size_t size = 0; size <= zeros.size(); ++size)
    EXPECT_TRUE(known.insert(WordHasher().bytes(std::span(zeros).first(size)).digest()).second);
}

// Journals contain digests. Within a version of the format, equal decisions must have equal digests.
TEST(DecisionDigest, DoesNotChangeWithinAVersion) {
  EXPECT_EQ(WordHasher().digest(), 0x243F6A8885A308D3U);
  const std::uint8_t sixteen[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  EXPECT_EQ(WordHasher().bytes(sixteen).digest(), 7898365411002679903U);
  Plan parts;
  EXPECT_EQ(digest_of(parts.plan()), 3528770752368435459U) << "raise the version in journal_format.h";
}

// Journals carry digests from one build to another, so the numbers must not change.
TEST(DecisionDigest, IsTheSameInEachBuild) {
  Plan parts;
  parts.scheduled[0].drafts = parts.scheduled[1].new_tokens = parts.tokens;
  StepPlan plan = parts.plan();
  EXPECT_EQ(digest_of(plan), 4744212367129574093U);
  EXPECT_EQ(digest_of(plan, false), 12620369900635245633U);
  std::vector<TokenId> tokens{1, 2};
  std::vector<RequestUpdate> updates(1);
  updates[0].id = {1};
  updates[0].tokens = tokens;
  updates[0].stop_token = 9;
  std::vector<FirstAdmission> admissions{{.id = {1}, .num_cached_tokens = 4}};
  std::vector<RequestId> ids{{3}, {4}};
  std::vector<FinishedSet> sets{{.client_index = 1, .ids = ids}};
  StepOutcome outcome{};
  outcome.step = {5};
  outcome.updates = updates;
  outcome.first_admissions = admissions;
  outcome.preempted = outcome.failed_loads = outcome.retired = ids;
  outcome.finished_sets = sets;
  EXPECT_EQ(digest_of(outcome), 341806553454301413U);
  EXPECT_EQ(digest_of(outcome, false), 6103570430612169672U);
  // These fields are single bits or halves of a number.
  parts.scheduled[0].pools = parts.scheduled[1].samples = parts.scheduled[1].send_all_tokens = true;
  parts.scheduled[0].kind = ScheduledKind::fresh;
  parts.scheduled[1].kind = ScheduledKind::resumed;
  parts.scheduled[1].num_output_tokens = 6;
  parts.transfers[0].group = parts.deltas[0].group = parts.copies[0].group = 1;
  parts.transfers[0].tier = 2;
  plan.has_structured_output = true;
  EXPECT_EQ(digest_of(plan), 1577217884994900952U);
  updates[0].finished = updates[0].session_waits = true;
  updates[0].status = RequestStatus::finished_error;
  updates[0].reason = FinishReason::abort;
  updates[0].client_index = 2;
  updates[0].num_cached_tokens = 5;
  updates[0].num_external_computed_tokens = 7;
  EXPECT_EQ(digest_of(outcome), 12410586348946565408U);
  updates[0].finished = false;
  EXPECT_EQ(digest_of(outcome), 13687181821859085630U);
}

}  // namespace
}  // namespace quire::test
