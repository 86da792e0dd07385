// The tables of options name every member, and every error of a number names the flag and the keyword that the user wrote.
#include <gtest/gtest.h>

#include <boost/pfr.hpp>
#include <limits>
#include <set>
#include <string>

#include "cli/flags/flag_names.h"
#include "engine/resolve_options.h"
#include "quire/engine_option_table.h"
#include "quire/server_option_table.h"

namespace quire {
namespace {

// Returns the number of scalar members that no row of `tables` has.
template <class Options, class... Tables>
int num_missing(const Tables&... tables) {
  Options options{};
  int missing = 0;
  boost::pfr::for_each_field(options, [&]<class Member>(Member& member) {
    if constexpr (std::is_constructible_v<OptionValue, Member*>) {
      const auto has = [&](const auto& table) {
        for (const auto& [value, info] : table)
          if (value != nullptr && value(options) == OptionValue(&member)) return true;
        return false;
      };
      if (!(has(tables) || ...)) ++missing;
    }
  });
  return missing;
}

TEST(OptionTable, HasEveryMemberOfTheStructs) {
  visit_core_options(
      []<class Options, std::size_t kNum>(const std::array<Option<Options>, kNum>& table, const auto&, std::string_view group) {
        if (!std::is_same_v<Options, CoreConfig>) {
          EXPECT_EQ(num_missing<Options>(table), 0) << group;
          EXPECT_EQ(boost::pfr::tuple_size_v<Options>, kNum) << group << ": the row of each member, in the order of the members";
        }
      });
  EXPECT_EQ(num_missing<CoreConfig>(kCoreOptions), 0);
  EXPECT_EQ((num_missing<CacheOptions>(kCacheOptions, kCacheMetricsOptions)), 0);
  EXPECT_EQ(num_missing<KvSwapOptions>(kKvSwapOptions), 0);
  EXPECT_EQ(num_missing<NgramOptions>(kNgramOptions), 0);
  EXPECT_EQ(num_missing<AdapterOptions>(kAdapterOptions), 0);
  EXPECT_EQ(num_missing<WeightsOptions>(kWeightsOptions), 0);
  EXPECT_EQ(num_missing<TraceOptions>(kTraceOptions), 0);
  EXPECT_EQ((num_missing<JournalOptions>(kJournalOptions, kSavedJournalOptions)), 0);
  EXPECT_EQ(num_missing<KvEventsOptions>(kKvEventsOptions), 0);
  EXPECT_EQ((num_missing<EngineOptions>(kEngineOptions, kLoadFailureOptions, kObservationOptions, kTenantOptions)), 1) << "besides `model`";
  EXPECT_EQ(num_missing<ServerOptions>(kServerOptions), 0);
}

// Each flag that several members share, or that a front end parses, is added by hand (cli/flags/tier_flags.cpp).
TEST(OptionTable, HasEveryMemberOfTheTiers) {
  // The members without a row are join_loads, store_threshold and max_tracker_size. num_missing() does not count `policy`.
  EXPECT_EQ(num_missing<KvDramOptions>(kKvDramOptions), 3);
  EXPECT_EQ(num_missing<KvDiskOptions>(kKvDiskOptions), 3);
  EXPECT_EQ(num_missing<KvRemoteOptions>(kKvRemoteOptions), 1);
  EXPECT_EQ(num_missing<KvPeerOptions>(kKvPeerOptions), 1);  // key_file
  EXPECT_EQ(num_missing<KvPeerCacheOptions>(kKvPeerCacheOptions), 2);
}

struct AllOptions {
  EngineOptions engine;
  KvDramOptions kv_dram;
  KvDiskOptions kv_disk;
  KvRemoteOptions kv_remote;
};

ModelInfo small_model() {
  ModelInfo model;
  model.name = "small";
  model.num_layers = model.num_kv_heads = 2;
  model.head_dim = 8;
  model.vocab_size = 100;
  model.context_length = 512;
  return model;
}

// Returns a value that is out of the option's range; 0 if it has none.
double value_outside(const OptionInfo& info) {
  if (info.kind == OptionKind::share) return 2.0;
  const auto& range = info.range ? info.range : info.core_range;
  return range ? static_cast<double>(range->high) + 1.0 : 0.0;
}

// Writes a number into an option. Returns false if its type cannot hold the number.
bool set_number(const OptionValue& value, double given) {
  return std::visit(
      [given](auto* number) {
        using Number = std::remove_cvref_t<decltype(*number)>;
        if constexpr (std::is_arithmetic_v<Number>) {
          if (given >= static_cast<double>(std::numeric_limits<Number>::max())) return false;
          *number = static_cast<Number>(given);
          return true;
        }
        return false;
      },
      value);
}

TEST(OptionTable, EveryNumberOutOfRangeIsNamedByItsFlagAndItsKeyword) {
  int checked = 0;
  visit_engine_options([&](const auto& table, const auto& struct_of) {
    for (const auto& [value, info] : table) {
      const double outside = value_outside(info);
      // The error of --kv-pressure-low names --kv-pressure-high, and both values.
      if (value == nullptr || info.flag.empty() || outside == 0.0 || info.flag == "--kv-pressure-low") continue;
      AllOptions options;
      options.engine.adapters.max_loras = 1;
      if (!set_number(value(struct_of(options)), outside)) continue;
      const auto resolved = resolve_options(options.engine, small_model(), {1, 1'000'000'000});
      ASSERT_FALSE(resolved.has_value()) << info.flag << " " << outside;
      EXPECT_EQ(as_flag(resolved.error()).field, info.flag);
      EXPECT_EQ(flag_of(resolved.error().field), info.flag);
      ++checked;
    }
  });
  EXPECT_GE(checked, 20);
}

TEST(OptionTable, EveryNumberOfTheServerOutOfRangeIsNamedByItsFlag) {
  int checked = 0;
  for (const auto& [value, info] : kServerOptions) {
    ServerOptions options;
    if (!info.range || !set_number(value(options), value_outside(info))) continue;
    const Result<void> valid = options.validate();
    ASSERT_FALSE(valid.has_value()) << info.name();
    EXPECT_EQ(as_flag(valid.error()).field, info.flag.empty() ? info.field : info.flag);
    ++checked;
  }
  EXPECT_GE(checked, 25);
}

TEST(OptionTable, ErrorsOfTheEngineTheCoreAndTheServerAreSpelledAsFlags) {
  for (const auto& [field, flag] : {std::pair("num_threads", "--threads"),
                                    {"isa", "--isa"},
                                    {"hash", "--prefix-caching-hash-algo"},
                                    {"kv_cache_bytes", "--kv-cache-memory"},
                                    {"continuum.pin_s", "--continuum-pin"},
                                    {"limits.max_fork_family", "--max-forks"},
                                    {"kv_role", "--kv-role"},
                                    {"store_threshold", "--kv-store-threshold"},
                                    {"lora_modules 'a': path", "--lora-modules 'a': path"},
                                    {"override_generation_config.top_k", "--override-generation-config.top_k"},
                                    {"max_body_bytes_in_flight", "--max-body-bytes-in-flight"},
                                    {"max_response_store_bytes", "--response-store"},
                                    {"max_pictures", "--limit-mm-per-prompt"},
                                    {"allowed_host", "--allowed-host"},
                                    {"tenant_keys_file", "--tenant-keys-file"},
                                    {"tenant_key", "--tenant-key"},
                                    {"tenant_keys", "tenant_keys"},
                                    {"", ""},
                                    {"prompt", "prompt"}})
    EXPECT_EQ(as_flag({.field = field, .message = "", .remedy = ""}).field, flag);
}

TEST(FlagNames, AreFoundAmongTheFlagsOfTheCommand) {
  CLI::App command;
  double scale = 0.0;
  command.add_option("--rate-scale", scale);
  const auto field_of = [&](const char* field) { return as_flag(command, {.field = field, .message = "", .remedy = ""}).field; };
  EXPECT_EQ(field_of("rate_scale"), "--rate-scale");
  EXPECT_EQ(field_of("rate-scale"), "--rate-scale");
  EXPECT_EQ(field_of("--rate-scale"), "--rate-scale");
  EXPECT_EQ(field_of("rate"), "rate") << "the command has no such flag";
  EXPECT_EQ(field_of("kv_role"), "--kv-role") << "from the tables";
  EXPECT_EQ(field_of(""), "");
}

TEST(OptionTable, EveryFlagAndEveryFieldIsInOneRow) {
  std::set<std::string> flags;
  const auto visit = [&](const auto& table, const auto& /*struct_of*/) {
    for (const auto& [value, info] : table)
      if (!info.flag.empty()) EXPECT_TRUE(flags.insert(std::string(info.flag)).second) << info.flag;
  };
  visit_engine_options(visit);
  visit_peer_options(visit);
  for (const std::string& flag : flags) EXPECT_EQ(flag_of(keyword_of(flag)), flag);
  visit(kServerOptions, nullptr);
}

TEST(OptionTable, TextForPythonHasKeywordsInPlaceOfFlags) {
  EXPECT_EQ(with_keywords("as many as fit into --kv-cache-memory"), "as many as fit into kv_cache_memory");
  EXPECT_EQ(with_keywords("(--max-num-seqs, -- a--b)"), "(max_num_seqs, -- a--b)");
}

}  // namespace
}  // namespace quire
