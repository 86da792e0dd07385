// Tests named connectors: known names, parsing, and the errors of invalid names, parameters and libraries.
#include "quire/connector_registry.h"

#include <gtest/gtest.h>

#include "engine/simulated_engine.h"
#include "engine/tiers/hashed_request.h"
#include "support/faulty_transport.h"
#include "support/scripted_connector.h"

namespace quire {
namespace {

struct OneGroup {
  OneGroup() {
    FullAttentionSpec spec;
    config.block_size = spec.block_size = 4;
    config.kv.groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}};
  }
  [[nodiscard]] ConnectorContext context() const { return {.config = &config, .bytes_per_block = 32}; }
  CoreConfig config;
};

std::string refusal(ConnectorRegistry& registry, const char* text) {
  const OneGroup group;
  const auto halves = registry.create(parse_named_connector(text).value(), group.context());
  return halves ? "" : halves.error().to_string();
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(ConnectorRegistry, ParsesANameWithParameters) {
  const NamedConnector plain = parse_named_connector("OffloadingConnector").value();
  EXPECT_EQ(plain.name, "OffloadingConnector");
  EXPECT_TRUE(plain.parameters.empty());
  const NamedConnector full = parse_named_connector("A,path=/x=y,empty=").value();
  EXPECT_EQ(full.name, "A");
  EXPECT_EQ(full.parameters, (ConnectorParameters{{"path", "/x=y"}, {"empty", ""}}));
  EXPECT_TRUE(parse_named_connector("A,").value().parameters.empty());
  const std::string form = "; use NAME[,key=value...]";
  for (const auto& [wrong, error] : {std::pair("", "has no connector name" + form),
                                     {",a=b", "has no connector name" + form},
                                     {"A,b", "'b' is not in the form key=value" + form},
                                     {"A,=b", "'=b' is not in the form key=value" + form},
                                     {"A,b=1,,c=2", "'' is not in the form key=value" + form},
                                     {"A,b=1,b=2", std::string("b is set twice; set it once")}})
    EXPECT_EQ(parse_named_connector(wrong).error().to_string(), "kv_connector: " + error) << wrong;
}

TEST(ConnectorRegistry, ListsTheKnownNamesWhenANameIsUnknown) {
  ConnectorRegistry registry;
  ASSERT_TRUE(registry.add("Mine", [](const ConnectorParameters&, const ConnectorContext&) { return Result<ConnectorAndTransport>(); }));
  EXPECT_TRUE(has(refusal(registry, "Yours"), "kv_connector: no connector Yours is registered; registered are Mine, OffloadingConnector"));
  EXPECT_TRUE(has(refusal(registry, "Mine"), "Mine did not create both a connector and a transport"));
  EXPECT_TRUE(has(registry.add("Mine", nullptr).error().to_string(), "a connector Mine is registered already"));
}

TEST(ConnectorRegistry, ChecksParametersByVllmsNames) {
  ConnectorRegistry registry;
  EXPECT_EQ(refusal(registry,
                    "OffloadingConnector,cpu_bytes_to_use=3200,block_size=8,eviction_policy=arc,store_threshold=2,max_tracker_size=100"),
            "");
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector"), "cpu_bytes_to_use: is required"));
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=31"), "have room for 0 blocks of 32"));
  EXPECT_TRUE(
      has(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=1e3"), "cpu_bytes_to_use=1e3 is not a number in the valid range"));
  const std::string unknown = refusal(registry, "OffloadingConnector,cpu_bytes=9");
  EXPECT_TRUE(has(unknown, "unknown parameter cpu_bytes; use one of: "));
  for (const char* known : {"block_size", "cpu_bytes_to_use", "eviction_policy", "max_tracker_size", "store_threshold"})
    EXPECT_TRUE(has(unknown, known)) << unknown;
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=3200,eviction_policy=fifo"), "unknown policy \"fifo\""));
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=32,block_size=8"),
                  "has no room for an offloaded block of 2 KV cache blocks"));
}

TEST(ConnectorRegistry, FindsTiersAndPoliciesByName) {
  ConnectorRegistry registry;
  ASSERT_TRUE(registry.add_policy("mine", [](std::uint32_t, const SlotKeys&) { return nullptr; }));
  EXPECT_TRUE(has(registry.add_policy("arc", nullptr).error().to_string(), "eviction_policy: arc is a built-in policy"));
  EXPECT_TRUE(has(registry.add_tier("CPUOffloadingSpec", nullptr).error().to_string(), "a tier CPUOffloadingSpec is registered already"));
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,spec_name=HeapTier,blocks=3"),
                  "spec_name: no tier HeapTier is registered; registered are CPU"));
  registry.add_library(QUIRE_EXAMPLE_CONNECTORS);
  EXPECT_EQ(refusal(registry, "OffloadingConnector,spec_name=HeapTier,blocks=3,eviction_policy=fifo"), "");
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,spec_name=HeapTier"), "blocks: must be at least 1, got 0"));
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,spec_name=HeapTier,cpu_bytes_to_use=9"), "unknown parameter cpu_bytes_to_use"));
  EXPECT_TRUE(registry.policy("fifo").value() != nullptr);
  EXPECT_TRUE(registry.policy("lru").value() == nullptr) << "quire's built-in policy";
  EXPECT_TRUE(has(registry.policy("mru").error().to_string(), "s3fifo, or one from a connector library: fifo, mine"));
}

TEST(ConnectorRegistry, OpensALibraryWhenItsNameIsUsed) {
  ConnectorRegistry registry;
  registry.add_library(QUIRE_EXAMPLE_CONNECTORS);
  registry.add_library("/nowhere/libnone.so");
  EXPECT_EQ(registry.names(), std::vector<std::string>{"OffloadingConnector"});
  EXPECT_EQ(refusal(registry, "SimpleCPUOffloadConnector,cpu_bytes_to_use=640"), "") << "later libraries are not opened";
  EXPECT_EQ(registry.names().size(), 4U);
  EXPECT_TRUE(has(refusal(registry, "ExampleConnector,path=/tmp"), "unknown parameter path; use one of: shared_storage_path"));
  EXPECT_TRUE(has(refusal(registry, "Other"), "kv_connector_library: /nowhere/libnone.so cannot be opened: "));
  EXPECT_TRUE(has(refusal(registry, "Other"), "no connector Other is registered")) << "a library is tried once";
}

TEST(ConnectorRegistry, RefusesAFileThatIsNoLibraryOrHasAnotherVersion) {
  ConnectorRegistry registry;
  registry.add_library("libm.so.6");
  EXPECT_TRUE(has(refusal(registry, "Other"), "libm.so.6 does not contain quire connectors"));
  registry.add_library(QUIRE_OLD_CONNECTORS);
  EXPECT_TRUE(has(refusal(registry, "Other"), "was built for version 0.0.9 of quire, but this is"));
}

TEST(ConnectorRegistry, ReportsANameThatIsTaken) {
  ConnectorRegistry registry;
  ASSERT_TRUE(registry.add("ExampleConnector",
                           [](const ConnectorParameters&, const ConnectorContext&) { return Result<ConnectorAndTransport>(); }));
  registry.add_library(QUIRE_EXAMPLE_CONNECTORS);
  EXPECT_TRUE(has(refusal(registry, "SimpleCPUOffloadConnector"), "a connector ExampleConnector is registered already"));
}

// Returns the connector that this text creates.
std::shared_ptr<OffloadConnector> offload_of(ConnectorRegistry& registry, const char* text, const OneGroup& group = {}) {
  auto halves = registry.create(parse_named_connector(text).value(), group.context()).value();
  return std::dynamic_pointer_cast<OffloadConnector>(halves.connector);
}

TEST(ConnectorRegistry, PassesParametersToTheOffloadingConnector) {
  ConnectorRegistry registry;
  const auto plain = offload_of(registry, "OffloadingConnector,cpu_bytes_to_use=63");
  EXPECT_EQ(plain->ledger().num_slots(), 1U);
  EXPECT_EQ(plain->blocks_per_key(), 1U);
  EXPECT_EQ(plain->ledger().filter(), nullptr);
  EXPECT_FALSE(test::joins_loads(*plain));
  EXPECT_EQ(plain->ledger().num_events(), 0U);
  const auto large = offload_of(registry, "OffloadingConnector,cpu_bytes_to_use=3200,block_size=8");
  EXPECT_EQ(large->ledger().num_slots(), 50U);
  EXPECT_EQ(large->blocks_per_key(), 2U);
  EXPECT_NE(offload_of(registry, "OffloadingConnector,cpu_bytes_to_use=320,store_threshold=2")->ledger().filter(), nullptr);
  EXPECT_TRUE(test::joins_loads(*offload_of(registry, "OffloadingConnector,cpu_bytes_to_use=320,join_loads=1")));
  EXPECT_FALSE(test::joins_loads(*offload_of(registry, "OffloadingConnector,cpu_bytes_to_use=320,join_loads=0")));
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=320,store_threshold=2,max_tracker_size=0"), "0 is out of range"));
  OneGroup group;
  group.config.report.enable_kv_events = true;
  const auto reports = offload_of(registry, "OffloadingConnector,cpu_bytes_to_use=320", group);
  test::add_key(*reports, 1);
  EXPECT_EQ(reports->ledger().num_events(), 1U);
}

TEST(ConnectorRegistry, NamesTheFieldAndTheRemedyOfABadTier) {
  ConnectorRegistry registry;
  EXPECT_EQ(refusal(registry, "OffloadingConnector"), "cpu_bytes_to_use: is required; set the size of the tier in bytes");
  EXPECT_EQ(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=137438953472"),
            "cpu_bytes_to_use: 137438953472 bytes have room for 4294967296 blocks of 32 bytes; use a size that holds 1 to 2^32 blocks");
  EXPECT_EQ(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=32,block_size=8"),
            "block_size: a tier of 1 blocks has no room for an offloaded block of 2 KV cache blocks; use a smaller block_size or a larger "
            "tier");
  EXPECT_EQ(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=64,block_size=8"), "");
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=64,block_size=x"), "kv_connector: block_size=x is not a number"));
  ASSERT_TRUE(registry.add_tier("Empty", [](const ConnectorParameters&, const ConnectorContext&) {
    return Result<OffloadTier>({.num_places = 7, .transport = nullptr});
  }));
  EXPECT_EQ(refusal(registry, "OffloadingConnector,spec_name=Empty"), "spec_name: Empty did not create a transport; fix its factory");
  ASSERT_TRUE(registry.add_tier("Seven", [](const ConnectorParameters& parameters, const ConnectorContext& context) {
    EXPECT_EQ(parameters, (ConnectorParameters{{"mine", "1"}})) << "the connector has read the other parameters";
    EXPECT_EQ(context.bytes_per_block, 32U);
    EXPECT_EQ(std::ranges::count(context.read_parameters, "block_size"), 1);
    return Result<OffloadTier>({.num_places = 7, .transport = MemoryTransport::create({.num_places = 7, .block_bytes = 32}).value()});
  }));
  EXPECT_EQ(offload_of(registry, "OffloadingConnector,spec_name=Seven,mine=1,block_size=4")->ledger().num_slots(), 7U);
}

TEST(ConnectorRegistry, RefusesHalfOfAConnector) {
  const auto connector = std::make_shared<test::ScriptedConnector>();
  const std::shared_ptr<Transport> transport = MemoryTransport::create({.num_places = 1, .block_bytes = 32}).value();
  ConnectorRegistry registry;
  for (const auto& [name, halves] : {std::pair<const char*, ConnectorAndTransport>("A", {.connector = connector, .transport = nullptr}),
                                     {"B", {.connector = nullptr, .transport = transport}},
                                     {"C", {.connector = connector, .transport = transport}}})
    ASSERT_TRUE(registry.add(
        name, [halves](const ConnectorParameters&, const ConnectorContext&) { return Result<ConnectorAndTransport>(halves); }));
  for (const char* name : {"A", "B"})
    EXPECT_EQ(refusal(registry, name),
              std::string("kv_connector: ") + name + " did not create both a connector and a transport; fix its factory");
  EXPECT_EQ(refusal(registry, "C"), "");
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"A", "B", "C", "OffloadingConnector"}));
  // A single connector is not wrapped; two of them are combined.
  const OneGroup group;
  std::vector<NamedConnector> some{{.name = "C"}};
  EXPECT_EQ(registry.create(some, false, group.context()).value().connector, connector);
  EXPECT_EQ(registry.create(some, false, group.context()).value().transport, transport);
  some.push_back({.name = "A"});
  EXPECT_EQ(registry.create(some, false, group.context()).error().message, "A did not create both a connector and a transport");
  EXPECT_EQ(registry.create(std::span<const NamedConnector>(), false, group.context()).error().to_string(),
            "kv_connector: no connector is set; set at least one connector");
}

TEST(ConnectorRegistry, CombinesConnectorsByTheChoice) {
  for (const bool prefers_longest_match : {false, true}) {
    ConnectorRegistry registry;
    for (const auto& [name, num_tokens] : {std::pair("A", 4U), {"B", 8U}})
      ASSERT_TRUE(registry.add(name, [num_tokens](const ConnectorParameters&, const ConnectorContext&) {
        auto one = std::make_shared<test::ScriptedConnector>();
        one->answer = {.num_tokens = num_tokens, .load_async = true};
        return Result<ConnectorAndTransport>(
            {.connector = one, .transport = MemoryTransport::create({.num_places = 1, .block_bytes = 32}).value()});
      }));
    const NamedConnector both{.name = "MultiConnector", .parameters = {{"connectors", "A|B"}}};
    const auto halves = registry.create({&both, 1}, prefers_longest_match, OneGroup().context()).value();
    EXPECT_EQ(halves.connector->match({}, 0).num_tokens, prefers_longest_match ? 8U : 4U);
  }
}

TEST(ConnectorRegistry, ExpandsMultiConnectorInItsPlace) {
  const NamedConnector first{.name = "First", .parameters = {{"a", "1"}}};
  const NamedConnector multi{.name = "MultiConnector", .parameters = {{"connectors", "A:x=1:y=2|B"}}};
  const std::vector<NamedConnector> given{first, multi, {.name = "Last"}};
  const auto all = expand_connectors(given).value();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].name, "First");
  EXPECT_EQ(all[0].parameters, first.parameters);
  EXPECT_EQ(all[1].name, "A");
  EXPECT_EQ(all[1].parameters, (ConnectorParameters{{"x", "1"}, {"y", "2"}}));
  EXPECT_EQ(all[2].name, "B");
  EXPECT_TRUE(all[2].parameters.empty());
  EXPECT_EQ(all[3].name, "Last");
  for (const ConnectorParameters& wrong : {ConnectorParameters{}, {{"connector", "A"}}, {{"connectors", "A"}, {"x", "1"}}}) {
    const NamedConnector bad{.name = "MultiConnector", .parameters = wrong};
    EXPECT_EQ(expand_connectors({&bad, 1}).error().to_string(),
              "kv_connector: MultiConnector takes exactly one parameter, connectors; use MultiConnector,connectors=NAME:key=value|NAME, or "
              "set each connector separately");
  }
  const NamedConnector inner{.name = "MultiConnector", .parameters = {{"connectors", "A|B:x"}}};
  EXPECT_EQ(expand_connectors({&inner, 1}).error().message, "'x' is not in the form key=value");
}

TEST(ConnectorRegistry, OpensDefaultLibrariesLastAndPassesOverTheirTakenNames) {
  ConnectorRegistry registry;
  registry.add_library("/nowhere/default.so", true);
  registry.add_library(QUIRE_EXAMPLE_CONNECTORS);
  EXPECT_EQ(refusal(registry, "SimpleCPUOffloadConnector,cpu_bytes_to_use=640"), "") << "the default library is not opened";
  EXPECT_TRUE(has(refusal(registry, "Other"), "/nowhere/default.so cannot be opened"));
  ConnectorRegistry taken;
  ASSERT_TRUE(
      taken.add("ExampleConnector", [](const ConnectorParameters&, const ConnectorContext&) { return Result<ConnectorAndTransport>(); }));
  taken.add_library(QUIRE_EXAMPLE_CONNECTORS, true);
  EXPECT_EQ(refusal(taken, "SimpleCPUOffloadConnector,cpu_bytes_to_use=640"), "");
  EXPECT_TRUE(has(refusal(taken, "ExampleConnector"), "did not create both")) << "the first one has the name";
}

TEST(ConnectorRegistry, ExplainsAnUnknownPolicy) {
  ConnectorRegistry registry;
  const Error alone = registry.policy("mru").error();
  EXPECT_EQ(alone.field, "eviction_policy");
  EXPECT_FALSE(has(alone.remedy, "connector library")) << alone.remedy;
  EXPECT_TRUE(has(registry.add_policy("mine", nullptr) ? registry.add_policy("mine", nullptr).error().to_string() : "",
                  "eviction_policy: a policy mine is registered already; use another name"));
  registry.add_library("/nowhere/libnone.so");
  EXPECT_EQ(registry.policy("mru").error().field, "kv_connector_library") << "the library might have had it";
  EXPECT_TRUE(has(registry.add_tier("CPUOffloadingSpec", nullptr).error().to_string(),
                  "spec_name: a tier CPUOffloadingSpec is registered already; use another name"));
}

// The tier loses the ends of all stores. A step computes 12 blocks, and a quarter of the cache has 15.
TEST(ConnectorRegistry, LimitsStoresOfAMeasuredConnector) {
  struct Case {
    bool is_measured;
    std::uint32_t num_slots, num_tokens;
    std::uint64_t num_stored, num_deferred;
  };
  for (const Case& one : {Case{false, 5, 48, 0, 0},  // all blocks of a step, or none
                          {true, 5, 48, 5, 0},       // the leading blocks
                          {true, 100, 60, 15, 0},
                          {true, 100, 64, 16, 4},  // four wait until the engine is idle
                          {false, 100, 64, 16, 0}}) {
    SCOPED_TRACE(one.num_slots * 1000 + one.num_tokens + (one.is_measured ? 1 : 0));
    const CoreConfig config = resolve_options(test::small_cache(), simulated_model(), {1, 0}).value().core;
    ConnectorRegistry registry;
    const NamedConnector named{.name = "OffloadingConnector",
                               .parameters = {{"cpu_bytes_to_use", std::to_string(one.num_slots * test::kSmallBlockBytes)}}};
    const auto halves =
        registry.create(named, {.config = &config, .bytes_per_block = test::kSmallBlockBytes, .is_measured = one.is_measured}).value();
    const auto offload = std::dynamic_pointer_cast<OffloadConnector>(halves.connector);
    const auto lossy = std::make_shared<test::FaultyTransport>(halves.transport, test::EndFaults{.lost_stores = 1.0});
    const auto engine = start(kModes[0], {.options = test::small_cache(), .seams = {.connector = offload, .transport = lossy}});
    Collector sink;
    sink.wait(engine->submit(make_request(one.num_tokens, 1), sink).value());
    engine->stop(0.05);
    EXPECT_EQ(offload->counters().num_stored, one.num_stored);
    EXPECT_EQ(offload->counters().num_deferred_by_limit, one.num_deferred);
    for (const OffloadKey& key : offload->ledger().resident_keys()) EXPECT_EQ(offload->ledger().ref_count(key), -1) << "not stored yet";
  }
}

}  // namespace
}  // namespace quire
