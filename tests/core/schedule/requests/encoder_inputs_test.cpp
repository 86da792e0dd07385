// Compares which encoder inputs run in which step with a plain loop over the items of each request, as in vLLM's scheduler
// (_try_schedule_encoder_inputs). The loop uses the real cache, which is tested against a separate naive model.
#include <list>
#include <set>
#include <string>

#include "base/random.h"
#include "core/kv/encoder_cache.h"
#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

constexpr std::int32_t kTokensPerStep = 16;
constexpr std::int64_t kEmbedsPerStep = 7;
constexpr std::uint32_t kCacheEmbeds = 9;
constexpr std::size_t kMostRunning = 3;
constexpr int kMaxTokens = 3;

bool is_elsewhere(std::string_view identifier) {
  return identifier < "c";
}

struct ElsewhereConnector final : EncoderConnector {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> reported;
  bool has(std::string_view identifier) override { return is_elsewhere(identifier); }
  void allocated(const RequestView& request, std::uint32_t index) override { reported.emplace_back(request.id.value, index); }
};

struct Sequence {
  RequestId id;
  std::vector<MultimodalFeature> items;
  std::int32_t num_tokens = 0;
  std::int32_t computed = 0;
  int num_outputs = 0;
  [[nodiscard]] EncoderInputs inputs() const { return {id, items}; }
};

struct Run {
  std::uint64_t id;
  std::int32_t num_tokens;
  std::vector<std::uint32_t> inputs;
  friend bool operator==(const Run&, const Run&) = default;
};

struct NaiveScheduler {
  CoreConfig config;
  EncoderCache cache;
  std::list<Sequence> running = {}, waiting = {};
  std::vector<Run> runs = {};
  std::vector<std::string> freed = {};
  std::vector<std::pair<std::uint64_t, std::uint32_t>> reported = {};
  std::int32_t tokens = 0;
  std::int64_t embeds = 0;
  int num_deferred = 0;

  bool run(Sequence& s) {
    std::int32_t n = std::min(s.num_tokens - s.computed, tokens);
    std::int64_t budget = embeds;
    std::int64_t planned = 0;
    std::set<std::string> this_step;
    Run run{.id = s.id.value, .num_tokens = 0, .inputs = {}};
    std::vector<std::uint32_t> loads;
    const std::int32_t shift = config.speculation.use_eagle ? 1 : 0;
    for (std::uint32_t i = 0; i < s.items.size() && n > 0; ++i) {
      const MultimodalFeature& item = s.items[i];
      const auto begin = static_cast<std::int32_t>(item.position.offset());
      const auto end = static_cast<std::int32_t>(item.position.end());
      if (begin >= s.computed + n + shift) break;
      if (config.encoder.is_encoder_decoder ? s.computed > 0 : end <= s.computed) continue;
      const bool cut = config.encoder.uncut_items && !config.encoder.is_encoder_decoder && s.computed + n < end;
      if (!cut && !config.encoder.is_encoder_decoder && (this_step.contains(item.identifier) || cache.check_and_reference(s.inputs(), i)))
        continue;
      const bool torn = config.encoder.disable_chunked_mm_input && s.computed < begin && s.computed + n < end;
      if (cut || torn || !cache.can_allocate(s.inputs(), i, budget, planned)) {
        n = std::max(0, begin - (s.computed + shift));
        ++num_deferred;
        break;
      }
      const auto [first, last] =
          item.position.embeds_in_range(std::max(0, s.computed - begin), std::min(end - begin, s.computed + n - begin));
      if (first == last) continue;
      planned += item.position.num_embeds();
      this_step.insert(item.identifier);
      if (is_elsewhere(item.identifier)) {
        loads.push_back(i);
      } else {
        budget -= item.position.num_embeds();
        run.inputs.push_back(i);
      }
    }
    if (n == 0) return false;
    embeds = budget;
    for (const auto& inputs : {run.inputs, loads}) {
      for (const std::uint32_t i : inputs) {
        cache.allocate(s.inputs(), i);
        reported.emplace_back(s.id.value, i);
      }
    }
    run.num_tokens = n;
    tokens -= n;
    runs.push_back(run);
    return true;
  }

  void plan() {
    tokens = kTokensPerStep;
    embeds = kEmbedsPerStep;
    runs.clear();
    for (Sequence& s : running)
      if (tokens > 0) run(s);
    while (!waiting.empty() && tokens > 0 && running.size() < kMostRunning && run(waiting.front()))
      running.splice(running.end(), waiting, waiting.begin());
    const auto gone = cache.take_freed();
    freed.assign(gone.begin(), gone.end());
    std::vector<std::uint32_t> cached;
    for (Sequence& s : running) {
      const auto ran = std::ranges::find(runs, s.id.value, &Run::id);
      if (ran == runs.end()) continue;
      s.computed += ran->num_tokens;
      cache.cached_inputs(s.inputs(), cached);
      for (const std::uint32_t i : cached) {
        const bool in_kv_cache = static_cast<std::int32_t>(s.items[i].position.end()) <= s.computed;
        if (config.encoder.is_encoder_decoder ? s.computed > 0 : in_kv_cache) cache.release(s.inputs(), i);
      }
    }
  }

  void apply() {
    for (auto s = running.begin(); s != running.end();) {
      const bool sampled = s->computed == s->num_tokens;
      s->num_tokens += sampled ? 1 : 0;
      s->num_outputs += sampled ? 1 : 0;
      s = s->num_outputs == kMaxTokens ? end(running, s) : std::next(s);
    }
  }

  std::list<Sequence>::iterator end(std::list<Sequence>& from, std::list<Sequence>::iterator s) {
    cache.release_all(s->inputs());
    return from.erase(s);
  }
};

// Lists for the items "a" to "h" the positions that have an embedding.
const std::vector<std::uint8_t> kMasks[] = {{1, 1, 1, 1},    {1, 1, 1, 1, 1, 1}, {1}, {0, 1, 1, 0, 1, 1, 0}, {1, 1, 1}, {0, 0, 1},
                                            {1, 1, 1, 1, 1}, {1, 0, 0, 1, 1, 1}};

Sequence random_sequence(Random& random, std::uint64_t id, bool encoder_decoder) {
  Sequence s{.id = RequestId{id}, .items = {}};
  std::uint32_t at = 0;
  for (std::uint64_t i = random.below(5); i > 0; --i) {
    const std::uint64_t name = random.below(8);
    const std::vector<std::uint8_t>& mask = kMasks[name];
    const std::uint32_t offset = encoder_decoder ? 0 : at + static_cast<std::uint32_t>(random.below(6));
    const auto whole = static_cast<std::uint32_t>(mask.size());
    s.items.push_back({std::string(1, static_cast<char>('a' + name)),
                       std::ranges::count(mask, 1) == whole ? PlaceholderRange(offset, whole) : PlaceholderRange(offset, mask)});
    at = offset + whole;
  }
  s.num_tokens = static_cast<std::int32_t>(encoder_decoder ? random.between(1, 24) : at + random.between(1, 8));
  return s;
}

struct Mode {
  bool use_eagle, is_encoder_decoder, whole_items, uncut_items = false;
};

CoreConfig config_of(const Mode& mode) {
  CoreConfig config = sync_config(256);
  config.prefix_cache.enable_prefix_caching = false;
  config.scheduler.max_num_batched_tokens = kTokensPerStep;
  config.scheduler.max_num_seqs = kMostRunning;
  config.encoder.max_encoder_tokens = kEmbedsPerStep;
  config.encoder.encoder_cache_size = kCacheEmbeds;
  config.speculation.use_eagle = mode.use_eagle;
  config.encoder.is_encoder_decoder = mode.is_encoder_decoder;
  config.encoder.disable_chunked_mm_input = mode.whole_items;
  config.encoder.uncut_items = mode.uncut_items;
  return config;
}

// Returns how often an item was deferred; the comparison needs such cases.
int play(const Mode& mode, std::uint64_t seed, int num_steps) {
  Random random(seed);
  const CoreConfig config = config_of(mode);
  ElsewhereConnector connector;
  CoreDriver d(config, {.encoder_connector = &connector});
  NaiveScheduler naive{.config = config,
                       .cache = {mode.is_encoder_decoder ? EncoderCacheMode::encoder_decoder : EncoderCacheMode::shared, kCacheEmbeds}};
  for (int step = 0, id = 0; step < num_steps && !testing::Test::HasFailure(); ++step) {
    for (; naive.waiting.size() < 2; ++id) {
      naive.waiting.push_back(random_sequence(random, static_cast<std::uint64_t>(id), mode.is_encoder_decoder));
      const Sequence& added = naive.waiting.back();
      const Tokens prompt = CoreDriver::prompt(added.id.value, static_cast<std::uint32_t>(added.num_tokens));
      NewRequest request = CoreDriver::request(added.id.value, prompt, kMaxTokens);
      request.multimodal = added.items;
      d.add(request);
    }
    // Waiting requests keep their references, so all requests can wait for each other.
    if (random.chance(0.05)) {
      auto& from = naive.running.empty() ? naive.waiting : naive.running;
      d.core->finish(from.front().id, RequestStatus::finished_aborted);
      naive.end(from, from.begin());
    }
    naive.plan();
    const StepPlan& plan = d.plan();
    std::vector<Run> runs;
    for (const ScheduledRequest& s : plan.scheduled)
      runs.push_back({s.id.value, static_cast<std::int32_t>(s.num_tokens), {s.encoder_inputs.begin(), s.encoder_inputs.end()}});
    EXPECT_EQ(runs, naive.runs) << "step " << step;
    EXPECT_EQ(std::vector<std::string>(plan.freed_encoder_outputs.begin(), plan.freed_encoder_outputs.end()), naive.freed)
        << "step " << step;
    EXPECT_EQ(connector.reported, naive.reported) << "step " << step;
    naive.apply();
    d.apply();
  }
  return naive.num_deferred;
}

TEST(EncoderInputs, EqualAPlainLoopOverTheItems) {
  for (const bool use_eagle : {false, true})
    for (const bool whole_items : {false, true}) EXPECT_GT(play({use_eagle, false, whole_items}, 5, 400), 20);
  EXPECT_GT(play({false, false, false, true}, 7, 400), 20);
  play({false, true, false, true}, 6, 400);
  play({false, true, false}, 6, 400);
}

// The prefix cache ends within the item, and the last embedding of the item belongs to the token before that end.
TEST(EncoderInputs, SkipAnInputWhoseEmbeddingsAreAllInTheKvCache) {
  CoreConfig config = sync_config();
  config.encoder.max_encoder_tokens = config.encoder.encoder_cache_size = 4;
  CoreDriver d(config);
  const Tokens prompt = CoreDriver::prompt(1, 8);
  const std::vector<std::uint8_t> mask = {1, 1, 1, 1, 0, 0, 0, 0};
  const std::vector<MultimodalFeature> items = {{"a", PlaceholderRange(0, mask)}};
  NewRequest request = CoreDriver::request(1, prompt, 1);
  request.multimodal = items;
  d.add(request);
  ASSERT_EQ(d.plan().scheduled[0].encoder_inputs.size(), 1U);
  d.apply();
  const Tokens other_prompt = CoreDriver::prompt(2, 8);
  const std::vector<MultimodalFeature> others = {{"b", PlaceholderRange(0, 4)}};
  NewRequest other = CoreDriver::request(2, other_prompt, 1);
  other.multimodal = others;
  d.add(other);
  ASSERT_EQ(d.plan().freed_encoder_outputs.size(), 1U) << "the cache has room for one output";
  d.apply();
  request.id = RequestId{3};
  d.add(request);
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.scheduled.size(), 1U);
  EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 4U);
  EXPECT_EQ(plan.scheduled[0].num_tokens, 4U);
  EXPECT_TRUE(plan.scheduled[0].encoder_inputs.empty());
  d.apply();
}

}  // namespace
}  // namespace quire::test
