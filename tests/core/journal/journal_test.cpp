// Tests journals of random runs: a replay makes the same decisions, and every cut, flipped bit or change is found.
#include "quire/journal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/journal/decision_digest.h"
#include "core/journal/journal_format.h"
#include "core/journal/random_run.h"
#include "support/count_allocations.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

// Writes several calls per frame, like a writing thread.
class Frames {
 public:
  explicit Frames(std::uint64_t seed) : random_(seed) {}
  void begin(const JournalHeader& header) { bytes = journal_header_frame(header); }
  void take(std::span<const std::uint8_t> call) {
    calls_.insert(calls_.end(), call.begin(), call.end());
    if (random_.below(4) == 0) flush();
  }
  void finish() {
    flush();
    append_frame(bytes, bytes.size(), FrameKind::end, journal_end_payload(JournalEnd::stopped));
  }
  std::vector<std::uint8_t> bytes;

 private:
  void flush() {
    if (!calls_.empty()) append_frame(bytes, bytes.size(), FrameKind::calls, calls_);
    calls_.clear();
  }
  Random random_;
  std::vector<std::uint8_t> calls_;
};

// Repeats the run of the seed with its recorded seam answers and returns its journal.
std::vector<std::uint8_t> journal_of(std::uint64_t seed) {
  RecordedRun run(seed);
  SeamPlayer player(run.answers());
  Frames frames(seed);
  JournalRecorder recorder(player.seams(), [&](std::span<const std::uint8_t> call) { frames.take(call); });
  frames.begin({.quire_version = "1", .decision_profile = "two", .start_time_s = 3.5, .config = run.config, .seams = recorder.which()});
  const auto core = Core::create(run.config, recorder.seams()).value();
  const std::vector<std::uint8_t> calls = run.calls();
  CoreCallReader reader(calls);
  while (reader.next().value()) reader.play(*core);
  EXPECT_TRUE(player.status().has_value());
  frames.finish();
  return std::move(frames.bytes);
}

// Replays the calls and returns the core's answers.
std::vector<JournalAnswer> play(JournalReader& reader, std::vector<JournalAnswer>& recorded) {
  std::vector<JournalAnswer> answers;
  SeamPlayer player(reader.header().seams);
  JournalRecorder recorder(player.seams(), [&](std::span<const std::uint8_t> call) {
    std::vector<std::uint8_t> bytes = journal_header_frame({});
    append_frame(bytes, bytes.size(), FrameKind::calls, call);
    const auto one = JournalReader::open(bytes).value();
    EXPECT_TRUE(one->next());
    answers.push_back(one->answer());
  });
  const auto core = Core::create(reader.header().config, recorder.seams()).value();
  while (reader.next()) {
    recorded.push_back(reader.answer());
    player.give(reader.answers());
    reader.play(*core);
  }
  EXPECT_TRUE(player.status().has_value());
  EXPECT_EQ(player.num_left(), 0U);
  return answers;
}

TEST(Journal, MakesTheSameDecisionsAgain) {
  std::uint64_t num_calls = 0;
  std::set<JournalAnswer::Kind> met;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const std::vector<std::uint8_t> bytes = journal_of(seed);
    const auto reader = JournalReader::open(bytes).value();
    EXPECT_EQ(reader->header().quire_version, "1");
    EXPECT_EQ(reader->header().decision_profile, "two");
    EXPECT_EQ(reader->header().start_time_s, 3.5);
    std::vector<JournalAnswer> recorded;
    const std::vector<JournalAnswer> answers = play(*reader, recorded);
    ASSERT_EQ(answers, recorded) << "seed " << seed;
    EXPECT_EQ(reader->damage(), "");
    EXPECT_EQ(reader->end(), JournalEnd::stopped);
    for (const JournalAnswer& answer : answers) met.insert(answer.kind);
    num_calls += answers.size();
  }
  EXPECT_GT(num_calls, 10'000U);
  EXPECT_EQ(met.size(), 4U) << "the runs cover answers of each kind";
}

std::size_t count_calls(std::span<const std::uint8_t> bytes, std::string& damage) {
  auto reader = JournalReader::open(bytes);
  if (!reader) EXPECT_EQ(reader.error().field, "journal");
  if (!reader) return 0;
  std::size_t count = 0;
  while ((*reader)->next()) ++count;
  damage = (*reader)->damage();
  EXPECT_TRUE((*reader)->end() != JournalEnd::cut || !damage.empty() || (*reader)->position() == bytes.size());
  return count;
}

TEST(Journal, ReadsACutJournalUpToTheCut) {
  const std::vector<std::uint8_t> bytes = journal_of(3);
  std::string damage;
  const std::size_t all = count_calls(bytes, damage);
  ASSERT_EQ(damage, "");
  std::size_t last = 0, num_whole = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    damage.clear();
    const std::size_t count = count_calls(std::span(bytes).first(size), damage);
    ASSERT_GE(count, last) << size;
    ASSERT_LE(count, all);
    num_whole += damage.empty() ? 1 : 0;
    last = count;
  }
  EXPECT_EQ(last, all) << "only the end frame is cut";
  EXPECT_GT(num_whole, 10U) << "a cut at the end of a frame is no damage";
}

TEST(Journal, FindsAFlippedBitInItsFrame) {
  const std::vector<std::uint8_t> bytes = journal_of(3);
  Random random(5);
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::uint8_t> other = bytes;
    const std::size_t at = random.below(other.size());
    other[at] ^= static_cast<std::uint8_t>(1U << random.below(8));
    const auto reader = JournalReader::open(other);
    if (!reader) ASSERT_TRUE(reader.error().field == "journal" && at < 1000) << reader.error().to_string();
    if (!reader) continue;
    while ((*reader)->next()) ASSERT_LE((*reader)->position(), at) << "the frame with the flipped bit is not read";
    EXPECT_NE((*reader)->damage(), "") << at;
    EXPECT_EQ((*reader)->end(), JournalEnd::cut);
  }
}

TEST(Journal, RefusesFramesAtAnotherOffset) {
  std::vector<std::uint8_t> bytes = journal_header_frame({});
  const std::size_t first = bytes.size();
  const std::vector<std::uint8_t> call = {14, 131, 0};  // make_stats(), which answers 0
  append_frame(bytes, bytes.size(), FrameKind::calls, call);
  const std::vector<std::uint8_t> frame(bytes.begin() + static_cast<std::ptrdiff_t>(first), bytes.end());
  std::string damage;
  EXPECT_EQ(count_calls(bytes, damage), 1U);
  EXPECT_EQ(damage, "");
  const std::size_t second = bytes.size();
  bytes.insert(bytes.end(), frame.begin(), frame.end());
  EXPECT_EQ(count_calls(bytes, damage), 1U) << "the frame is repeated";
  EXPECT_EQ(damage, fmt::format("the frame at byte {} fails its checksum", second));
}

TEST(Journal, ReadsRandomPayloadsWithAValidChecksum) {
  Random random(11);
  std::uint32_t num_read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::uint8_t> payload(random.below(60));
    for (std::uint8_t& byte : payload) byte = static_cast<std::uint8_t>(random.below(random.below(4) == 0 ? 256 : 20));
    if (payload.size() > 2 && random.below(2) == 0) payload[0] = 14, payload[1] = 131, payload[2] = 1;
    std::vector<std::uint8_t> bytes = journal_header_frame({});
    append_frame(bytes, bytes.size(), static_cast<FrameKind>(1 + random.below(4)), payload);
    std::string damage;
    num_read += count_calls(bytes, damage);
  }
  EXPECT_GT(num_read, 500U);
}

TEST(Journal, RefusesOtherVersionsAndOtherFiles) {
  std::vector<std::uint8_t> bytes = journal_header_frame({});
  bytes[7] = kJournalVersion + 1;
  EXPECT_EQ(JournalReader::open(bytes).error().code, ErrorCode::unsupported);
  EXPECT_NE(JournalReader::open(bytes).error().message.find(fmt::format("has format version {}", kJournalVersion + 1)), std::string::npos);
  EXPECT_EQ(JournalReader::open({}).error().code, ErrorCode::invalid_argument);
  const std::string text = "{\"event\":\"step_snapshot\"}";
  EXPECT_FALSE(JournalReader::open({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}).has_value());
}

TEST(Journal, RefusesAHeaderOfAnotherLength) {
  const std::vector<std::uint8_t> good = journal_header_frame({});
  ASSERT_TRUE(JournalReader::open(good).has_value());
  // The file begins with magic and version. A frame with the header follows.
  constexpr std::size_t kBegin = 8;
  const std::vector<std::uint8_t> payload(good.begin() + kBegin + kFrameHeadBytes, good.end());
  for (const int more : {-1, 1}) {
    std::vector<std::uint8_t> changed = payload, bytes(good.begin(), good.begin() + kBegin);
    changed.resize(more < 0 ? payload.size() - 1 : payload.size() + 1);
    append_frame(bytes, bytes.size(), FrameKind::header, changed);
    EXPECT_FALSE(JournalReader::open(bytes).has_value()) << more;
  }
}

TEST(Journal, ReadsACoreStateAtTheBeginningOrBeforeACall) {
  const std::vector<std::uint8_t> first = {1, 2, 3}, second = {4, 5}, call = {14, 131, 0};
  std::vector<std::uint8_t> bytes = journal_header_frame({});
  append_frame(bytes, bytes.size(), FrameKind::checkpoint,
               journal_checkpoint({.run_start_s = 2.5, .number = 3, .progress = {700, 300, 9.5}, .state = first}));
  append_frame(bytes, bytes.size(), FrameKind::calls, call);
  append_frame(bytes, bytes.size(), FrameKind::checkpoint, journal_checkpoint({.progress = {.num_calls = 701}, .state = second}));
  for (int i = 0; i < 2; ++i) append_frame(bytes, bytes.size(), FrameKind::calls, call);
  std::string damage;
  EXPECT_EQ(count_calls(bytes, damage), 3U);
  EXPECT_EQ(damage, "");
  const auto reader = JournalReader::open(bytes).value();
  ASSERT_NE(reader->start(), nullptr);
  EXPECT_EQ(reader->start()->run_start_s, 2.5);
  EXPECT_EQ(reader->start()->number, 3U);
  EXPECT_EQ(reader->start()->progress, (JournalProgress{700, 300, 9.5}));
  EXPECT_TRUE(std::ranges::equal(reader->start()->state, first));
  ASSERT_TRUE(reader->next());
  EXPECT_EQ(reader->checkpoint(), nullptr);
  ASSERT_TRUE(reader->next());
  ASSERT_NE(reader->checkpoint(), nullptr);
  EXPECT_EQ(reader->checkpoint()->progress.num_calls, 701U);
  EXPECT_TRUE(std::ranges::equal(reader->checkpoint()->state, second));
  ASSERT_TRUE(reader->next());
  EXPECT_EQ(reader->checkpoint(), nullptr);
}

TEST(Journal, RefusesAnInvalidCoreState) {
  const std::vector<std::uint8_t> cut = {1, 2, 3};
  std::vector<std::uint8_t> bytes = journal_header_frame({});
  append_frame(bytes, bytes.size(), FrameKind::checkpoint, cut);
  const auto without = JournalReader::open(bytes);
  ASSERT_FALSE(without.has_value());
  EXPECT_NE(without.error().message.find("has no initial state of the core"), std::string::npos);
  bytes = journal_header_frame({});
  append_frame(bytes, bytes.size(), FrameKind::calls, std::vector<std::uint8_t>{14, 131, 0});
  const std::size_t at = bytes.size();
  append_frame(bytes, bytes.size(), FrameKind::checkpoint, cut);
  append_frame(bytes, bytes.size(), FrameKind::calls, std::vector<std::uint8_t>{14, 131, 0});
  std::string damage;
  EXPECT_EQ(count_calls(bytes, damage), 1U);
  EXPECT_EQ(damage, fmt::format("the frame at byte {} is not a valid core state", at));
}

TEST(Journal, ReturnsTheRecordedCall) {
  std::vector<std::uint8_t> bytes;
  Frames frames(1);
  JournalRecorder recorder({}, [&](std::span<const std::uint8_t> call) { frames.take(call); });
  frames.begin({});
  CallSink& calls = *recorder.seams().calls;
  const core_call::Finish finish{RequestId{4}, RequestStatus::finished_aborted, {.now = 2.0}};
  calls.on_call(finish);
  calls.answered(1);
  frames.finish();
  const auto reader = JournalReader::open(frames.bytes).value();
  ASSERT_TRUE(reader->next());
  CoreCallWriter told, expected;
  told.sink().on_call(reader->call());
  expected.sink().on_call(finish);
  EXPECT_EQ(told.take(), expected.take());
  EXPECT_EQ(reader->answer(), (JournalAnswer{JournalAnswer::Kind::answered, 1}));
}

TEST(Journal, TakesNoMemoryInTheSteadyState) {
  if (!QUIRE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "ThreadSanitizer has a separate operator new, so allocations are not counted";
  CoreConfig config;
  config.block_size = 16;
  FullAttentionSpec spec;
  spec.block_size = 16;
  config.scheduler.max_num_seqs = 16;
  config.scheduler.max_model_len = 16384;
  config.kv = {.num_blocks = 16'400, .groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}}, .tensors = {}};
  std::uint64_t num_bytes = 0;
  QuietConnector connector;
  JournalRecorder recorder({.connector = &connector}, [&](std::span<const std::uint8_t> call) { num_bytes += call.size(); });
  const auto core = Core::create(config, recorder.seams()).value();
  const std::vector<TokenId> prompt(100, 7);
  for (std::uint64_t id = 0; id < 16; ++id)
    ASSERT_TRUE(core->add({.id = RequestId{id}, .prompt = prompt, .max_tokens = 16000}).has_value());
  std::vector<SampledToken> sampled;
  const auto decode = [&](int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      const StepPlan& plan = core->schedule({.now = 1.0 * step, .random = 1U + static_cast<std::uint64_t>(step)});
      sampled.clear();
      for (const ScheduledRequest& s : plan.scheduled)
        if (s.samples) sampled.push_back({s.id, static_cast<TokenId>(step)});
      ASSERT_TRUE(core->apply({.step = plan.step, .sampled = sampled}).has_value());
    }
  };
  decode(100);
  const std::uint64_t before = num_allocations, bytes_before = num_bytes;
  decode(2000);
  EXPECT_EQ(num_allocations - before, 0U);
  EXPECT_GT(num_bytes - bytes_before, 2000U * 16 * 2) << "the calls were recorded";
}

}  // namespace
}  // namespace quire::test
