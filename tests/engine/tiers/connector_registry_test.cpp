// Tests named connectors: known names, parsing, and the errors of invalid names, parameters and libraries.
#include "quire/connector_registry.h"

#include <gtest/gtest.h>

#include "engine/collector.h"

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
  for (const char* wrong : {"", ",a=b", "A,b", "A,=b", "A,b=1,b=2", "A,"})
    EXPECT_EQ(parse_named_connector(wrong).has_value(), std::string(wrong) == "A,") << wrong;
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

}  // namespace
}  // namespace quire
