// Replays histories that tools/record/offload_connector.py recorded from vLLM's scheduler with its OffloadingConnector. Plans, transfers,
// events and free blocks must be the same.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <sstream>

#include "core/connect/offload_connector.h"
#include "quire/base/plan.h"
#include "quire/core.h"
#include "support/recording.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kBlock = 4;
constexpr std::uint32_t kPositions = 4096;  // of a family
constexpr std::uint64_t kBytes = 8;         // of a block

struct Settings {
  std::uint32_t num_blocks = 0, max_num_seqs = 0, max_num_batched_tokens = 0;
  bool is_async = false, prefix_caching = false, reserve_full_isl = false;
  std::uint32_t factor = 1, slots = 0;
  std::string policy;
  std::int64_t store_threshold = 0, max_tracker_size = 1;
  std::string order;  // "fcfs" or "priority"
  std::uint32_t max_loras = 0, num_spec_tokens = 0;
};

Settings read_settings(std::istream& words) {
  Settings s;
  words >> s.num_blocks >> s.max_num_seqs >> s.max_num_batched_tokens >> s.is_async >> s.prefix_caching >> s.reserve_full_isl >> s.factor >>
      s.slots >> s.policy >> s.store_threshold >> s.max_tracker_size >> s.order >> s.max_loras >> s.num_spec_tokens;
  return s;
}

CoreConfig core_config(const Settings& s) {
  CoreConfig config;
  config.block_size = kBlock;
  FullAttentionSpec spec;
  spec.block_size = kBlock;
  config.kv = {.num_blocks = s.num_blocks, .groups = {{.layer_names = {"layer0"}, .spec = spec, .layer_specs = {}}}, .tensors = {}};
  config.scheduler.max_num_seqs = s.max_num_seqs;
  config.scheduler.max_num_batched_tokens = s.max_num_batched_tokens;
  config.scheduler.max_model_len = 32 * kBlock;
  config.scheduler.async_scheduling = s.is_async;
  config.scheduler.reserve_full_isl = s.reserve_full_isl;
  config.scheduler.admit_oversized = true;
  config.scheduler.policy = s.order == "priority" ? SchedulingPolicy::priority : SchedulingPolicy::fcfs;
  config.limits.max_loras = s.max_loras;
  config.speculation.num_spec_tokens = s.num_spec_tokens;
  config.prefix_cache.enable_prefix_caching = s.prefix_caching;
  config.report.log_stats = false;
  return config;
}

std::unique_ptr<OffloadConnector> make_connector(const Settings& s, const CoreConfig& config) {
  return OffloadConnector::create({.cpu_bytes_to_use = std::max<std::uint64_t>(1, kBytes * s.factor * s.slots),
                                   .block_size = kBlock * s.factor,
                                   .eviction_policy = s.policy,
                                   .store_threshold = s.store_threshold,
                                   .max_tracker_size = s.max_tracker_size,
                                   .enable_events = true},
                                  config, kBytes)
      .value();
}

// Plays one history and writes the same text as the recorder.
class Player {
 public:
  explicit Player(const Settings& settings)
      : settings_(settings), config_(core_config(settings)), connector_(make_connector(settings, config_)) {
    core_ = Core::create(config_, {.connector = connector_.get()}).value();
  }

  void play(const std::string& word) {
    const std::string rest = word.substr(1, word.find('=') - 1);
    if (word[0] == 'a') add(rest);
    if (word[0] == 'x') core_->finish(RequestId{std::stoull(rest)}, RequestStatus::finished_aborted);
    if (word[0] == 'r') ASSERT_TRUE(core_->reset_prefix_cache(word[1] == '1'));
    if (word[0] == 's') schedule();
    if (word[0] == 'u') apply(rest);
    if (word[0] == 'd') set_drafts(rest);
    core_->check_invariants();
    connector_->check_invariants();
  }
  [[nodiscard]] std::uint64_t digest() const { return digest_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const OffloadConnector& connector() const { return *connector_; }
  [[nodiscard]] const Core& core() const { return *core_; }
  [[nodiscard]] std::uint64_t num_accepted_drafts() const { return num_accepted_drafts_; }

 private:
  using Parts = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // family, end
  using Counts = std::map<RequestId, std::uint32_t>;

  [[nodiscard]] TokenId token(RequestId id, std::uint32_t position) const {
    const Parts& parts = parts_.at(id);
    const auto part = std::ranges::find_if(parts, [&](const auto& p) { return position < p.second; });
    return static_cast<TokenId>((part == parts.end() ? parts.back().first : part->first) * kPositions + position);
  }

  void add(const std::string& text) {
    std::istringstream words(text);
    std::string id, max_tokens, priority, adapter, part;
    for (std::string* field : {&id, &max_tokens, &priority, &adapter}) std::getline(words, *field, ',');
    const std::string adapter_name = adapter == "0" ? "" : "lora" + adapter;
    NewRequest request{
        .id = RequestId{std::stoull(id)}, .priority = std::stoll(priority), .lora_id = std::stoll(adapter), .lora_name = adapter_name};
    Parts& parts = parts_[request.id];
    while (std::getline(words, part, ',')) parts.emplace_back(std::stoul(part), std::stoul(part.substr(part.find(':') + 1)));
    std::vector<TokenId> prompt;
    for (std::uint32_t i = 0; i < parts.back().second; ++i) prompt.push_back(token(request.id, i));
    request.prompt = prompt;
    request.max_tokens = static_cast<std::uint32_t>(std::stoul(max_tokens));
    request.arrival_time = static_cast<double>(parts_.size());
    const auto added = core_->add(request);
    ASSERT_TRUE(added) << added.error().to_string();
  }

  void schedule() {
    const StepPlan& plan = core_->schedule();
    number_blocks(plan);
    std::vector<std::string> rows;
    plans_.push_back({plan.step, {}});
    for (const ScheduledRequest& s : plan.scheduled) {
      rows.push_back(fmt::format("{}:{}+{}", s.id.value, s.num_computed_tokens, s.num_tokens));
      if (s.samples) plans_.back().second.push_back(s.id);
    }
    tell(fmt::format("plan {} preempted {} free {}", fmt::join(rows, " "), numbers(plan.preempted), num_free()));
    for (const Transfer& transfer : plan.transfers) tell_transfer(transfer);
    tell_events();
  }

  void apply(const std::string& text) {
    const std::size_t slash = text.find('/');
    std::vector<TransferCompletion> completions;
    std::istringstream words(text.substr(0, slash));
    for (std::string id; std::getline(words, id, '.');) completions.push_back({.transfer = TransferId{std::stoull(id)}});
    const auto accepted = slash == std::string::npos ? Counts{} : read_counts(text.substr(slash + 1), '.');
    const auto [step, ids] = std::move(plans_.front());
    plans_.pop_front();
    std::vector<SampledToken> sampled;
    for (const RequestId id : ids) {
      const auto view = core_->view(id);
      const std::uint32_t first = view ? static_cast<std::uint32_t>(view->tokens.size()) : 0;
      const std::uint32_t num_sampled = 1 + (accepted.contains(id) ? accepted.at(id) : 0);
      for (std::uint32_t i = 0; i < num_sampled; ++i) sampled.push_back({id, token(id, first + i)});
      num_accepted_drafts_ += num_sampled - 1;
    }
    const auto applied = core_->apply({.step = step, .sampled = sampled, .has_connector_output = true, .completions = completions});
    ASSERT_TRUE(applied) << applied.error().to_string();
    std::vector<RequestId> ended;
    for (const RequestUpdate& update : (*applied)->updates)
      if (update.finished) ended.push_back(update.id);
    tell(fmt::format("ended {} free {}", numbers(ended), num_free()));
    tell_events();
  }

  // Parses "ID:COUNT" of each request.
  static Counts read_counts(const std::string& text, char separator) {
    Counts counts;
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, separator);)
      counts[RequestId{std::stoull(word)}] = static_cast<std::uint32_t>(std::stoul(word.substr(word.find(':') + 1)));
    return counts;
  }

  void set_drafts(const std::string& text) {
    const std::vector<TokenId> tokens(settings_.num_spec_tokens);
    std::vector<Draft> drafts;
    for (const auto& [id, count] : read_counts(text, ',')) drafts.push_back({.id = id, .tokens = std::span(tokens).first(count)});
    core_->set_drafts(drafts);
  }

  void tell(const std::string& line) {
    text_ += line + "\n";
    for (const char c : line + "\n") digest_ = (digest_ ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  }

  void tell_transfer(const Transfer& transfer) {
    std::vector<std::uint64_t> blocks, slots;
    for (const BlockId block : transfer.blocks) blocks.push_back(block.value);
    for (std::size_t i = 0; i < transfer.places.size(); ++i) {
      if (i == 0 || transfer.places[i] % settings_.factor == 0) slots.push_back(transfer.places[i] / settings_.factor);
      EXPECT_EQ(transfer.places[i] % settings_.factor, (transfer.places.front() + i) % settings_.factor);
    }
    tell(fmt::format("{} {} blocks {} slots {} from {}", transfer.direction == TransferDirection::load ? "load" : "store",
                     transfer.request.value, fmt::join(blocks, " "), fmt::join(slots, " "), transfer.places.front() % settings_.factor));
  }

  void tell_events() {
    std::vector<std::size_t> stored;
    for (std::size_t i = 0; i < connector_->ledger().num_events(); ++i) {
      const OffloadEvent event = connector_->ledger().event(i);
      std::vector<std::size_t> keys;
      for (const OffloadKey& key : event.keys) keys.push_back(numbers_.at(key.hash));
      if (event.removed)
        tell(fmt::format("removed {}", fmt::join(keys, " ")));
      else
        stored.insert(stored.end(), keys.begin(), keys.end());
    }
    std::ranges::sort(stored);
    if (!stored.empty()) tell(fmt::format("stored {}", fmt::join(stored, " ")));
    connector_->clear_events();
  }

  // A block's number does not depend on the hash function.
  void number_blocks(const StepPlan& plan) {
    for (const ScheduledRequest& s : plan.scheduled) {
      const std::span<const std::uint8_t> names = core_->view(s.id)->block_hashes;
      for (std::size_t& i = num_numbered_[s.id]; i < names.size() / 32; ++i) {
        Name name;
        std::ranges::copy(names.subspan(i * 32, 32), name.begin());
        numbers_.try_emplace(name, numbers_.size());
      }
    }
  }

  static std::string numbers(std::span<const RequestId> ids) {
    std::vector<std::uint64_t> values;
    std::ranges::transform(ids, std::back_inserter(values), &RequestId::value);
    return fmt::format("{}", fmt::join(values, " "));
  }
  [[nodiscard]] std::uint32_t num_free() const { return core_->counters().num_free_blocks; }

  using Name = std::array<std::uint8_t, 32>;
  Settings settings_;
  CoreConfig config_;
  std::unique_ptr<OffloadConnector> connector_;
  std::unique_ptr<Core> core_;
  std::map<RequestId, Parts> parts_;
  std::map<RequestId, std::size_t> num_numbered_;
  std::map<Name, std::size_t> numbers_;
  std::deque<std::pair<StepId, std::vector<RequestId>>> plans_;  // requests that sample
  std::uint64_t num_accepted_drafts_ = 0;
  std::uint64_t digest_ = 0xcbf29ce484222325U;
  std::string text_;
};

// Totals over all histories.
struct Met {
  std::uint64_t num_histories = 0, num_stored = 0, num_loaded = 0, num_preemptions = 0, num_without_slot = 0, num_accepted_drafts = 0;
};

void play(const std::string& line, Met& met) {
  std::istringstream words(line);
  std::string word, seed;
  words >> word >> seed;
  ASSERT_EQ(word, "h");
  Player player(read_settings(words));
  while (words >> word) {
    if (word[0] != '=') player.play(word);
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const std::string wanted = word.substr(equals + 1);
    const std::string given = fmt::format("{:016x}", player.digest());
    ASSERT_EQ(given.substr(given.size() - wanted.size()), wanted)
        << "history " << seed << ", at " << word << ":\n"
        << player.text() << "vLLM's: python -m record offload_connector --show " << seed;
  }
  ++met.num_histories;
  met.num_stored += player.connector().counters().num_stored;
  met.num_loaded += player.connector().counters().num_loaded;
  met.num_without_slot += player.connector().counters().num_without_slot;
  met.num_preemptions += player.core().counters().num_preemptions;
  met.num_accepted_drafts += player.num_accepted_drafts();
}

TEST(OffloadHistories, MatchTheDecisionsOfVllmsSchedulerAndConnector) {
  std::istringstream file = open_recording("tests/golden/offload_connector.txt.xz", "QUIRE_OFFLOAD_HISTORIES");
  Met met;
  for (std::string line; std::getline(file, line);) {
    play(line, met);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GE(met.num_histories, 100U) << "the record is empty";
  EXPECT_GT(met.num_stored, met.num_histories) << "the test covers too few cases";
  EXPECT_GT(met.num_loaded, met.num_histories / 4);
  EXPECT_GT(met.num_preemptions, met.num_histories / 20);
  EXPECT_GT(met.num_without_slot, met.num_histories / 20);
  EXPECT_GT(met.num_accepted_drafts, met.num_histories);
  fmt::print("{} histories: {} blocks stored, {} loaded, {} without room, {} preemptions, {} drafts accepted\n", met.num_histories,
             met.num_stored, met.num_loaded, met.num_without_slot, met.num_preemptions, met.num_accepted_drafts);
}

}  // namespace
}  // namespace quire::test
