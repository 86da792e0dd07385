// Tests journals without tokens: the replayed core decides the same from the remaining data, and the journal contains no text.
#include "core/journal/left_out.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <optional>
#include <set>

#include "core/journal/byte_stream.h"
#include "core/journal/random_run.h"
#include "engine/journal/journal_writer.h"
#include "lab/replay/live_run.h"
#include "lab/replay/planted.h"
#include "quire/journal.h"
#include "runtime/tier/tier_support.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

// Collects how requests ended.
class Ends final : public CallSink {
 public:
  void on_call(const CoreCall& /*call*/) override {}
  void applied(const StepOutcome* outcome) override {
    if (outcome == nullptr) return;
    for (const RequestUpdate& update : outcome->updates)
      if (update.finished) ends.insert(update.status);
  }
  std::multiset<RequestStatus> ends;
};

// Writes the run of this seed to files, with or without its tokens.
void write_seeded(std::uint64_t seed, const std::string& folder, bool tokens, std::uint64_t calls_per_file) {
  RecordedRun run(seed);
  SeamPlayer player(run.answers());
  const auto journal =
      JournalWriter::create({.folder = folder, .tokens = tokens}, run.config, player.seams(), {.calls_per_checkpoint = calls_per_file})
          .value();
  const auto core = Core::create(run.config, journal->seams()).value();
  const std::vector<std::uint8_t> calls = run.calls();
  CoreCallReader reader(calls);
  while (reader.next().value()) reader.play(*core);
  EXPECT_TRUE(player.status().has_value());
}

struct Played {
  std::uint64_t num_calls = 0, num_tokens = 0;
  std::multiset<RequestStatus> ends;
};

Played expect_same_again(const std::string& folder) {
  Played played;
  ReplayReport before;
  for (const std::string& path : journals_in(folder)) {
    Ends ends;
    auto report = replay(path, {.also = &ends, .before = &before});
    EXPECT_TRUE(report.has_value()) << report.error().to_string();
    if (!report) return played;
    EXPECT_FALSE(report->difference.has_value()) << path << ": " << report->difference->what << "\n" << report->difference->state;
    EXPECT_EQ(report->damage, "");
    EXPECT_EQ(report->num_checkpoints, report->start ? 1U : 0U);
    played.num_calls += report->num_calls;
    played.num_tokens += report->num_tokens;
    played.ends.merge(ends.ends);
    before = std::move(*report);
  }
  return played;
}

TEST(LeftOut, RandomRunsReplayIdentically) {
  Played all;
  const std::uint64_t num_seeds = rounds_of(60);
  for (std::uint64_t seed = 0; seed < num_seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const TempFolder with, without;
    write_seeded(seed, with.path(), true, 2000);
    write_seeded(seed, without.path(), false, 2000);
    const Played original = expect_same_again(with.path()), blank = expect_same_again(without.path());
    EXPECT_EQ(blank.num_calls, original.num_calls);
    EXPECT_EQ(blank.num_tokens, original.num_tokens);
    EXPECT_EQ(blank.ends, original.ends) << "requests end for the same reasons";
    all.num_calls += blank.num_calls;
    all.ends.insert(blank.ends.begin(), blank.ends.end());
    if (HasFailure()) return;
  }
  fmt::print("{} decisions, {} stopped, {} by repetition\n", all.num_calls, all.ends.count(RequestStatus::finished_stopped),
             all.ends.count(RequestStatus::finished_repetition));
  EXPECT_GT(all.ends.count(RequestStatus::finished_stopped), num_seeds / 4);
  EXPECT_GT(all.ends.count(RequestStatus::finished_repetition), num_seeds / 20);
}

TEST(LeftOut, EnginesOfAnyConfigurationReplayIdentically) {
  std::uint64_t num_calls = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const TempFolder folder;
    auto engine = start_random(seed, {.folder = folder.path(), .max_bytes = std::uint64_t{1} << 20U, .tokens = false});
    LiveRun(*engine, seed).play(60);
    engine->stop(60.0);
    engine.reset();
    num_calls += expect_same_again(folder.path()).num_calls;
    if (HasFailure()) return;
  }
  EXPECT_GT(num_calls, 20'000U);
}

// Counts these distinctive tokens in every form in which the journal writes numbers.
std::uint64_t count_secrets(const std::vector<std::uint8_t>& bytes, std::span<const TokenId> secrets) {
  std::uint64_t count = 0;
  for (const TokenId secret : secrets) {
    ByteWriter short_form, plain_form;
    short_form.value(secret);
    plain_form.number(static_cast<std::uint64_t>(secret));
    std::vector<std::uint8_t> memory(sizeof secret);
    std::memcpy(memory.data(), &secret, sizeof secret);
    for (const std::vector<std::uint8_t>& form : {short_form.bytes, plain_form.bytes, memory})
      for (auto at = bytes.begin(); (at = std::search(at, bytes.end(), form.begin(), form.end())) != bytes.end(); ++at) ++count;
  }
  return count;
}

std::vector<TokenId> secrets_from(TokenId first) {
  std::vector<TokenId> secrets;
  secrets.reserve(40);
  for (TokenId i = 0; i < 40; ++i) secrets.push_back(first + i * 0x01010203);
  return secrets;
}

constexpr TokenId kStop = 7;

CoreConfig talk_config() {
  CoreConfig config;
  config.block_size = 4;
  FullAttentionSpec spec;
  spec.block_size = 4;
  config.scheduler.max_model_len = 200;
  config.scheduler.async_scheduling = false;
  config.speculation.num_spec_tokens = 2;
  config.report.enable_kv_events = true;
  config.kv = {.num_blocks = 200, .groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}}, .tensors = {}};
  return config;
}

// A prompt, a session, a repetitive answer, a stop, a fork, draft tokens and embeddings: all consist of secret tokens.
void talk(Core& core, std::span<const TokenId> secrets) {
  const std::span<const TokenId> prompt = secrets.first(20);
  NewRequest request{.id = RequestId{1}, .prompt = prompt, .max_tokens = 30};
  request.stop_token_ids = {&kStop, 1};
  ASSERT_TRUE(core.add(request).has_value());
  request.id = RequestId{2};
  request.resumable = true;
  ASSERT_TRUE(core.add(request).has_value());
  const SessionInput input{.tokens = prompt};
  ASSERT_TRUE(core.continue_session(RequestId{2}, &input).has_value());
  request.resumable = false;
  request.id = RequestId{4};
  request.repetition = {.min_pattern_tokens = 1, .max_pattern_tokens = 4, .min_count = 3};
  ASSERT_TRUE(core.add(request).has_value());
  const std::vector<TokenId> zeros(20, 0);
  request = {.id = RequestId{5}, .prompt = zeros, .max_tokens = 30};
  request.prompt_embeds = std::as_bytes(prompt);
  ASSERT_TRUE(core.add(request).has_value());
  for (std::uint32_t step = 0; step < 12; ++step) {
    const StepPlan& plan = core.schedule();
    std::vector<SampledToken> sampled;
    for (const ScheduledRequest& s : plan.scheduled) {
      if (!s.samples) continue;
      sampled.push_back({s.id, s.id.value == 4 ? secrets[20 + step % 2] : step == 9 && s.id.value == 2 ? kStop : secrets[20 + step]});
    }
    ASSERT_TRUE(core.apply({.step = plan.step, .sampled = sampled}).has_value());
    if (step == 3) ASSERT_TRUE(core.fork(RequestId{1}, {.id = RequestId{3}, .next_token = secrets[39], .max_tokens = 30}).has_value());
    std::vector<Draft> drafts;
    drafts.reserve(sampled.size());
    for (const SampledToken& s : sampled)
      if (core.view(s.id)) drafts.push_back({s.id, secrets.subspan(32, 2)});
    core.set_drafts(drafts);
  }
}

TEST(LeftOut, FileContainsNoTokens) {
  const std::vector<TokenId> secrets = secrets_from(0x2B5A4931);
  for (const bool tokens : {true, false}) {
    const TempFolder folder, saved;
    {
      const JournalOptions options{.folder = folder.path(), .save_folder = saved.path(), .tokens = tokens};
      const auto journal = JournalWriter::create(options, talk_config(), {}, {.calls_per_checkpoint = 200}).value();
      const auto core = Core::create(talk_config(), journal->seams()).value();
      talk(*core, secrets);
      std::promise<bool> is_saved;
      journal->save([&](const Result<SavedJournal>& answer) { is_saved.set_value(answer.has_value()); });
      ASSERT_TRUE(is_saved.get_future().get());
    }
    std::uint64_t count = 0;
    std::vector<std::string> paths = journals_in(folder.path());
    ASSERT_GT(paths.size(), 3U);
    paths.push_back(only_file(saved.path()));
    const auto report = replay(paths.back());
    ASSERT_TRUE(report.has_value()) << report.error().to_string();
    EXPECT_FALSE(report->difference.has_value()) << report->difference->what;
    EXPECT_GT(report->num_checkpoints, 3U);
    for (const std::string& path : paths) count += count_secrets(bytes_of(path), secrets);
    if (tokens)
      EXPECT_GT(count, 100U) << "the search must find tokens that are present";
    else
      EXPECT_EQ(count, 0U);
    const Played played = expect_same_again(folder.path());
    EXPECT_EQ(played.ends.count(RequestStatus::finished_repetition), 1U);
    EXPECT_EQ(played.ends.count(RequestStatus::finished_stopped), 1U);
  }
}

// The hash of the n-th block text is n, whatever the text is.
class CountedNames final : public HashFunction {
 public:
  BlockHash hash(const BlockHash* parent, const HashInput& input) override {
    std::vector<std::uint8_t> content;
    content.reserve(sizeof(BlockHash) + input.tokens.size());
    if (parent != nullptr) content.assign(parent->bytes.begin(), parent->bytes.end());
    for (const TokenId token : input.tokens) content.push_back(static_cast<std::uint8_t>(token));
    if (input.embeds_digest) content.insert(content.end(), input.embeds_digest->begin(), input.embeds_digest->end());
    BlockHash name;
    name.bytes[0] = static_cast<std::uint8_t>(numbers_.try_emplace(content, numbers_.size() + 1).first->second);
    return name;
  }

 private:
  std::map<std::vector<std::uint8_t>, std::size_t> numbers_;
};

std::vector<std::uint8_t> recorded_talk(const std::vector<TokenId>& secrets, const std::optional<PseudonymKey>& leave_out) {
  CountedNames names;
  std::vector<std::uint8_t> bytes;
  std::size_t num_states = 0;
  JournalRecorder* behind = nullptr;
  JournalRecorder recorder(
      {.hash = &names},
      [&](std::span<const std::uint8_t> call) {
        bytes.insert(bytes.end(), call.begin(), call.end());
        const std::vector<std::uint8_t> state = behind->checkpoint();
        bytes.insert(bytes.end(), state.begin(), state.end());
        ++num_states;
      },
      leave_out);
  behind = &recorder;
  talk(*Core::create(talk_config(), recorder.seams()).value(), secrets);
  EXPECT_GT(num_states, 20U);
  return bytes;
}

// The journal depends only on which blocks are equal, not on their tokens.
TEST(LeftOut, ConversationsOfOneStructureGiveTheSameBytes) {
  const PseudonymKey key{.words = {1, 2}};
  const std::vector<TokenId> one = secrets_from(0x2B5A4931), other = secrets_from(0x1A2B3C4D);
  EXPECT_NE(recorded_talk(one, {}), recorded_talk(other, {}));
  EXPECT_EQ(recorded_talk(one, key), recorded_talk(other, key));
}

// A lookup (Core::probe) also computes block hashes, but at that time no recorded call is in progress.
TEST(LeftOut, DoesNotWriteHashesComputedBetweenCalls) {
  const std::vector<TokenId> secrets = secrets_from(0x2B5A4931);
  const NewRequest looked_at{.id = RequestId{9}, .prompt = std::span(secrets).last(20)};
  std::vector<std::vector<std::uint8_t>> written(2);
  for (const bool looks : {false, true}) {
    CountedNames names;
    std::vector<std::uint8_t>& bytes = written[looks ? 1 : 0];
    const auto take = [&bytes](std::span<const std::uint8_t> call) { bytes.insert(bytes.end(), call.begin(), call.end()); };
    JournalRecorder recorder({.hash = &names}, take, PseudonymKey{.words = {1, 2}});
    const auto core = Core::create(talk_config(), recorder.seams()).value();
    for (std::uint64_t id = 1; id < 4; ++id) {
      ASSERT_TRUE(core->add({.id = RequestId{id}, .prompt = std::span(secrets).first(20)}).has_value());
      if (looks) ASSERT_TRUE(core->probe(looked_at).has_value());
    }
    const StepPlan& plan = core->schedule();
    if (looks) ASSERT_TRUE(core->probe(looked_at).has_value());
    ASSERT_TRUE(core->apply({.step = plan.step}).has_value());
  }
  EXPECT_EQ(written[0], written[1]);
}

// An attacker that guesses the tokens and hashes its blocks must find none of these hashes, nor hashes of another run.
TEST(LeftOut, BlockHashesAreReplacedByPseudonyms) {
  const std::vector<TokenId> secrets = secrets_from(0x2B5A4931);
  const auto guess = Core::create(talk_config()).value();
  ASSERT_TRUE(guess->add({.id = RequestId{1}, .prompt = std::span(secrets).first(20)}).has_value());
  const std::span<const std::uint8_t> names = guess->view(RequestId{1})->block_hashes;
  ASSERT_EQ(names.size(), 5 * sizeof(BlockHash));
  for (const bool tokens : {true, false}) {
    const TempFolder folder;
    {
      const auto journal =
          JournalWriter::create({.folder = folder.path(), .tokens = tokens}, talk_config(), {}, {.calls_per_checkpoint = 200}).value();
      const auto core = Core::create(talk_config(), journal->seams()).value();
      talk(*core, secrets);
    }
    std::size_t num_found = 0;
    for (const std::string& path : journals_in(folder.path())) {
      const std::vector<std::uint8_t> bytes = bytes_of(path);
      for (std::size_t at = 0; at < names.size(); at += 8) num_found += std::ranges::search(bytes, names.subspan(at, 8)).empty() ? 0 : 1;
    }
    if (tokens)
      EXPECT_GT(num_found, 20U) << "the saved states contain the hashes";
    else
      EXPECT_EQ(num_found, 0U);
  }
}

TEST(LeftOut, FindsAnInjectedChange) {
  const TempFolder folder, other;
  write_seeded(3, folder.path(), false, std::uint64_t{1} << 30U);
  const std::string path = only_file(folder.path());
  for (const std::uint64_t which : {7U, 50U, 120U}) {
    const Planted planted = plant(path, other.file("copy"), which, false);
    const ReplayReport report = replay(planted.path).value();
    ASSERT_TRUE(report.difference.has_value());
    EXPECT_EQ(report.difference->call, planted.call);
  }
}

}  // namespace
}  // namespace quire::test
