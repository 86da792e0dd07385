// Replays recordings of vLLM's KVCacheManager made by tools/oracle/kv_cases.py. Equal calls must give equal answers and leave the same free
// queue, reference counts, hashes and block tables.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <iomanip>
#include <map>
#include <memory>
#include <sstream>

#include "base/digest.h"
#include "core/kv/kv_cache_manager.h"
#include "core/kv/kv_support.h"
#include "support/recording.h"

namespace quire::test {
namespace {

// Returns the first four bytes of each hash of a key.
std::string shortened(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 32) text += to_hex(bytes.subspan(at, 4));
  return text;
}

template <class Values, class Text>
std::string joined(const Values& values, std::string_view separator, Text text) {
  std::string result;
  bool first = true;
  for (const auto& value : values) {
    result += first ? "" : separator;
    result += text(value);
    first = false;
  }
  return result;
}

std::string ids(std::span<const BlockId> blocks) {
  return joined(blocks, ",", [](BlockId block) { return std::to_string(block.value); });
}

struct KeyText {
  std::string operator()(const std::string& text) const { return text; }
  std::string operator()(const MultimodalKey& key) const { return key.identifier + "@" + std::to_string(key.offset); }
  std::string operator()(const std::vector<std::uint8_t>& bytes) const { return to_hex(bytes); }
};

std::string text_of(const std::optional<KvExtraKeys>& keys) {
  return keys ? joined(*keys, "+", [](const KvExtraKey& key) { return std::visit(KeyText{}, key); }) : "-";
}

struct EventText {
  std::string operator()(const AllBlocksCleared&) const { return "cleared"; }
  std::string operator()(const BlockRemoved& event) const { return "removed " + shortened(event.block_hash); }
  std::string operator()(const BlockStored& event) const {
    std::string text = "stored " + joined(event.block_hashes, ",", [](const auto& hash) { return shortened(hash); });
    text += " " + (event.parent_block_hash ? shortened(*event.parent_block_hash) : "-");
    text += " " + joined(event.token_ids, ",", [](TokenId token) { return std::to_string(token); });
    text += " " + std::to_string(event.block_size);
    text += " " + (event.lora_id ? std::to_string(*event.lora_id) : "-");
    text += " " + event.lora_name.value_or("-") + " " + event.medium + " ";
    return text + (event.extra_keys ? joined(*event.extra_keys, "/", [](const auto& keys) { return text_of(keys); }) : "-");
  }
};

struct Recorded : TestRequest {
  using TestRequest::TestRequest;
  KvHit hit;
  std::vector<std::vector<BlockId>> hit_blocks;
};

LayerKvSpec make_spec(const std::string& kind, std::uint32_t size, std::uint32_t a, std::uint32_t b) {
  if (kind == "mla" || kind == "full") return kind == "mla" ? mla(size) : full(size);
  if (kind == "sink" || kind == "window") return kind == "sink" ? sink(a, size) : window(a, size);
  if (kind == "chunked" || kind == "cross") return kind == "chunked" ? chunked(a, size) : cross(size);
  const auto mode = kind == "mamba_all" ? MambaCacheMode::all : kind == "mamba_align" ? MambaCacheMode::align : MambaCacheMode::none;
  return mamba(mode, b, size);
}

class Player {
 public:
  void play(std::istream& in) {
    std::string line;
    for (line_number_ = 1; std::getline(in, line) && !testing::Test::HasFatalFailure(); ++line_number_) {
      const std::size_t answer = line.find(" = ");
      std::istringstream words(line.substr(0, answer));
      std::string verb;
      words >> verb;
      if (answer == std::string::npos) {
        set_up(verb, words);
      } else {
        const std::size_t state = line.find(" # ", answer);
        const std::string expected = line.substr(answer + 3, state - answer - 3);
        ASSERT_EQ(call(verb, words), expected) << where(line);
        check_state(line.substr(state + 3), line);
        ++num_calls_;
      }
    }
  }
  [[nodiscard]] int num_calls() const { return num_calls_; }

 private:
  std::string where(const std::string& line) const { return "line " + std::to_string(line_number_) + ": " + line + "\nin " + config_; }

  void set_up(const std::string& verb, std::istream& words) {
    if (verb == "config") {
      configure(words);
    } else if (verb == "request") {
      add_request(words);
    } else if (verb == "tokens") {
      Recorded& request = read_request(words);
      std::vector<TokenId> tokens;
      for (TokenId token; words >> token;) tokens.push_back(token);
      request.append(tokens);
    } else if (verb == "gone") {
      std::uint32_t index = 0;
      words >> index;
      requests_.erase(index);
    }
  }

  void configure(std::istream& words) {
    std::getline(words, config_);
    std::istringstream in(config_);
    KvCacheConfig config;
    std::uint32_t num_groups = 0;
    options_ = {};
    in >> config.num_blocks >> options_.max_model_len >> options_.hash_block_size >> options_.enable_caching >> options_.use_eagle >>
        options_.enable_events >> options_.dcp_world_size >> options_.pcp_world_size >> num_groups;
    options_.log_stats = true;
    for (std::uint32_t i = 0; i < num_groups; ++i) {
      std::string kind;
      std::uint32_t size = 0, a = 0, b = 0;
      in >> kind >> size >> a >> b;
      config.groups.push_back({.layer_names = {}, .spec = make_spec(kind, size, a, b), .layer_specs = {}});
    }
    const auto checked = KvCacheManager::check(config, options_);
    ASSERT_TRUE(checked.has_value()) << checked.error().to_string() << " in " << config_;
    requests_.clear();
    manager_ = std::make_unique<KvCacheManager>(config, options_);
  }

  void add_request(std::istream& words) {
    std::uint32_t index = 0;
    words >> index;
    Recorded& request = requests_.try_emplace(index, options_.hash_block_size).first->second;
    bool lora = false;
    std::size_t num_features = 0, num_tokens = 0;
    words >> request.skip >> lora >> request.salt >> num_features;
    request.lora = lora ? "adapter" : "";
    request.salt = request.salt == "-" ? "" : request.salt;
    for (std::size_t i = 0; i < num_features; ++i) {
      std::string identifier;
      std::uint32_t offset = 0, length = 0;
      words >> identifier >> offset >> length;
      request.features.push_back({identifier, PlaceholderRange(offset, length)});
    }
    words >> num_tokens;
    std::vector<TokenId> tokens(num_tokens);
    for (TokenId& token : tokens) words >> token;
    request.append(tokens);
  }

  Recorded& read_request(std::istream& words) {
    std::uint32_t index = 0;
    words >> index;
    return requests_.at(index);
  }

  static KvRequest view(Recorded& request, std::uint32_t num_computed) {
    request.num_computed = num_computed;
    return request.view();
  }

  std::string call(const std::string& verb, std::istream& words) {
    if (verb == "find") return find(words);
    if (verb == "fits" || verb == "allocate") return verb == "fits" ? fits(words) : allocate(words);
    if (verb == "evict") {
      std::vector<BlockId> blocks;
      for (std::uint32_t block = 0; words >> block;) blocks.push_back({block});
      manager_->evict_blocks(blocks);
      return "-";
    }
    if (verb == "free" || verb == "cache" || verb == "skip") {
      change(verb, words);
      return "-";
    }
    return run_query(verb, words);
  }

  std::string find(std::istream& words) {
    Recorded& request = read_request(words);
    int num_preemptions = 0;
    words >> num_preemptions;
    request.preempted = num_preemptions > 0;
    const KvHit hit = manager_->find_prefix(view(request, 0));
    request.hit_blocks.assign(hit.groups.begin(), hit.groups.end());
    request.hit = {.groups = request.hit_blocks, .num_tokens = hit.num_tokens};
    return std::to_string(hit.num_tokens) + " " +
           (hit.groups.empty() ? "shared" : joined(hit.groups, "", [](const auto& list) { return "[" + ids(list) + "]"; }));
  }

  std::string fits(std::istream& words) {
    Recorded& request = read_request(words);
    std::uint32_t computed = 0;
    SlotDemand demand;
    bool with_hit = false;
    words >> computed >> demand.num_new_computed_tokens >> demand.num_external_tokens >> demand.num_encoder_tokens >> with_hit;
    return manager_->missing_for_full_sequence(view(request, computed), demand, with_hit ? request.hit : KvHit{}) == 0 ? "1" : "0";
  }

  std::string allocate(std::istream& words) {
    Recorded& request = read_request(words);
    std::uint32_t computed = 0;
    SlotDemand demand;
    bool with_hit = false;
    words >> computed >> demand.num_new_tokens >> demand.num_new_computed_tokens >> demand.num_lookahead_tokens >>
        demand.num_external_tokens >> demand.delay_caching >> demand.num_encoder_tokens >> with_hit;
    if (manager_->allocate_slots(view(request, computed), demand, with_hit ? request.hit : KvHit{}) > 0) return "none";
    std::string text;
    for (std::uint32_t group = 0; group < manager_->num_groups(); ++group) text += "[" + ids(request.blocks.new_blocks(group)) + "]";
    return text;
  }

  void change(const std::string& verb, std::istream& words) {
    Recorded& request = read_request(words);
    std::uint32_t num_tokens = 0;
    words >> num_tokens;
    if (verb == "free")
      manager_->free(request.blocks);
    else if (verb == "cache")
      manager_->cache_blocks(view(request, 0), num_tokens);
    else
      manager_->remove_skipped_blocks(request.blocks, num_tokens);
  }

  std::string run_query(const std::string& verb, std::istream& words) {
    if (verb == "step") {
      manager_->new_step_starts(0.0);
      return "-";
    }
    if (verb == "reset") return manager_->reset_prefix_cache() ? "1" : "0";
    if (verb == "zero") {
      std::vector<BlockId> blocks;
      manager_->take_new_block_ids(blocks);
      return ids(blocks);
    }
    if (verb == "events") {
      std::vector<KvEvent> events;
      manager_->take_events(events);
      return joined(events, "; ", [](const KvEvent& event) { return std::visit(EventText{}, event); });
    }
    if (verb == "common") {
      std::vector<std::uint32_t> counts(manager_->num_groups());
      manager_->common_prefix_blocks(read_request(words).blocks, counts);
      return joined(counts, ",", [](std::uint32_t count) { return std::to_string(count); });
    }
    if (verb == "stats") {
      const PrefixCacheStats stats = manager_->take_prefix_cache_stats();
      const std::array<std::uint64_t, 7> values{stats.reset ? 1U : 0U,    stats.requests,          stats.queries,       stats.hits,
                                                stats.preempted_requests, stats.preempted_queries, stats.preempted_hits};
      return joined(values, " ", [](std::uint64_t value) { return std::to_string(value); });
    }
    return verb == "usage" ? std::to_string(std::bit_cast<std::uint64_t>(manager_->usage())) : "unknown verb " + verb;
  }

  void check_state(const std::string& expected, const std::string& line) {
    std::vector<const KvBlocks*> sequences;
    for (const auto& [index, request] : requests_) sequences.push_back(&request.blocks);
    manager_->check_invariants(sequences);
    if (expected == "-") return;
    const std::string state = state_text();
    if (expected.starts_with("free=")) {
      ASSERT_EQ(state, expected) << where(line);
    } else {
      std::ostringstream digest;
      digest << std::hex << std::setw(16) << std::setfill('0') << fnv(state);
      ASSERT_EQ(digest.str(), expected) << where(line) << "\nstate " << state;
    }
  }

  std::string state_text() const {
    const BlockPool& pool = manager_->pool();
    std::vector<BlockId> all, named;
    for (std::uint32_t i = 1; i < pool.num_blocks(); ++i) {
      all.push_back({i});
      if (pool.index().contains({i})) named.push_back({i});
    }
    const auto name = [&](BlockId block) {
      const std::vector<std::uint8_t> key = pool.key_of(block);
      return std::to_string(block.value) + ":" + shortened(std::span(key).first(key.size() - 4)) + "g" + std::to_string(key.back());
    };
    const auto live = [&](const auto& entry) {
      std::string text = std::to_string(entry.first);
      for (std::uint32_t group = 0; group < manager_->num_groups(); ++group) {
        const auto cached = entry.second.blocks.num_cached_blocks(group);
        text += "[" + ids(entry.second.blocks.blocks(group)) + "|" + (cached ? std::to_string(*cached) : "-") + "]";
      }
      return text;
    };
    return "free=" + ids(pool.free_queue().to_vector()) +
           " refs=" + joined(all, ",", [&](BlockId block) { return std::to_string(pool.ref_count(block)); }) +
           " names=" + joined(named, ",", name) + " requests=" + joined(requests_, ";", live);
  }

  std::string config_;
  KvCacheOptions options_;
  std::unique_ptr<KvCacheManager> manager_;
  std::map<std::uint32_t, Recorded> requests_;
  int line_number_ = 0;
  int num_calls_ = 0;
};

TEST(RecordedKvCacheManager, MakesTheRecordedDecisionsOfVllm) {
  std::istringstream in = open_recording("tests/golden/kv/cases.txt.xz", "QUIRE_KV_CASES");
  ASSERT_TRUE(in.good());
  Player player;
  player.play(in);
  EXPECT_GT(player.num_calls(), 1000);
}

}  // namespace
}  // namespace quire::test
