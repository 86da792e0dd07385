// Connectors by name: what is known, what is read, and what is said of a name, a parameter or a library that is wrong.
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

TEST(ConnectorRegistry, ANameWithParametersIsRead) {
  const NamedConnector plain = parse_named_connector("OffloadingConnector").value();
  EXPECT_EQ(plain.name, "OffloadingConnector");
  EXPECT_TRUE(plain.parameters.empty());
  const NamedConnector full = parse_named_connector("A,path=/x=y,empty=").value();
  EXPECT_EQ(full.name, "A");
  EXPECT_EQ(full.parameters, (ConnectorParameters{{"path", "/x=y"}, {"empty", ""}}));
  for (const char* wrong : {"", ",a=b", "A,b", "A,=b", "A,b=1,b=2", "A,"})
    EXPECT_EQ(parse_named_connector(wrong).has_value(), std::string(wrong) == "A,") << wrong;
}

TEST(ConnectorRegistry, AnUnknownNameListsTheKnown) {
  ConnectorRegistry registry;
  ASSERT_TRUE(registry.add("Mine", [](const ConnectorParameters&, const ConnectorContext&) { return Result<ConnectorHalves>(); }));
  EXPECT_TRUE(has(refusal(registry, "Yours"), "kv_connector: there is no connector Yours; there are Mine, OffloadingConnector"));
  EXPECT_TRUE(has(refusal(registry, "Mine"), "Mine has made only a half"));
  EXPECT_TRUE(has(registry.add("Mine", nullptr).error().to_string(), "there is a connector Mine already"));
}

TEST(ConnectorRegistry, ParametersHaveVllmsNamesAndAreChecked) {
  ConnectorRegistry registry;
  EXPECT_EQ(refusal(registry,
                    "OffloadingConnector,cpu_bytes_to_use=3200,block_size=8,eviction_policy=arc,store_threshold=2,max_tracker_size=100"),
            "");
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector"), "cpu_bytes_to_use: it must be given"));
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=31"), "have room for 0 blocks of 32"));
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=1e3"), "cpu_bytes_to_use=1e3 is no number in range"));
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,cpu_bytes=9"), "it knows no parameter cpu_bytes; it knows cpu_bytes_to_use"));
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=3200,eviction_policy=fifo"), "there is no policy \"fifo\""));
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,cpu_bytes_to_use=32,block_size=8"), "has no room for 2 of them together"));
}

TEST(ConnectorRegistry, TiersAndPoliciesHaveNamesToo) {
  ConnectorRegistry registry;
  ASSERT_TRUE(registry.add_policy("mine", [](std::uint32_t, const SlotKeys&) { return nullptr; }));
  EXPECT_TRUE(has(registry.add_policy("arc", nullptr).error().to_string(), "eviction_policy: arc is quire's own"));
  EXPECT_TRUE(has(registry.add_tier("CPUOffloadingSpec", nullptr).error().to_string(), "there is a tier CPUOffloadingSpec already"));
  EXPECT_TRUE(
      has(refusal(registry, "OffloadingConnector,spec_name=HeapTier,blocks=3"), "spec_name: there is no tier HeapTier; there are CPU"));
  registry.add_library(QUIRE_EXAMPLE_CONNECTORS);
  EXPECT_EQ(refusal(registry, "OffloadingConnector,spec_name=HeapTier,blocks=3,eviction_policy=fifo"), "");
  EXPECT_TRUE(has(refusal(registry, "OffloadingConnector,spec_name=HeapTier"), "blocks: there is room for none"));
  EXPECT_TRUE(
      has(refusal(registry, "OffloadingConnector,spec_name=HeapTier,cpu_bytes_to_use=9"), "it knows no parameter cpu_bytes_to_use"));
  EXPECT_TRUE(registry.policy("fifo").value() != nullptr);
  EXPECT_TRUE(registry.policy("lru").value() == nullptr) << "quire's own";
  EXPECT_TRUE(has(registry.policy("mru").error().to_string(), "s3fifo, or one of a library: fifo, mine"));
}

TEST(ConnectorRegistry, ALibraryIsOpenedWhenItsNameIsAskedFor) {
  ConnectorRegistry registry;
  registry.add_library(QUIRE_EXAMPLE_CONNECTORS);
  registry.add_library("/nowhere/libnone.so");
  EXPECT_EQ(registry.names(), std::vector<std::string>{"OffloadingConnector"});
  EXPECT_EQ(refusal(registry, "SimpleCPUOffloadConnector,cpu_bytes_to_use=640"), "") << "what is behind it is not opened";
  EXPECT_EQ(registry.names().size(), 4U);
  EXPECT_TRUE(has(refusal(registry, "ExampleConnector,path=/tmp"), "it knows no parameter path; it knows shared_storage_path"));
  EXPECT_TRUE(has(refusal(registry, "Other"), "kv_connector_library: /nowhere/libnone.so cannot be opened: "));
  EXPECT_TRUE(has(refusal(registry, "Other"), "there is no connector Other")) << "a library is tried once";
}

TEST(ConnectorRegistry, ALibraryThatIsNoneOrOfAnotherVersionIsRefused) {
  ConnectorRegistry registry;
  registry.add_library("libm.so.6");
  EXPECT_TRUE(has(refusal(registry, "Other"), "libm.so.6 has no connectors of quire's"));
  registry.add_library(QUIRE_OLD_CONNECTORS);
  EXPECT_TRUE(has(refusal(registry, "Other"), "is for version 0.0.9 of quire, and this is"));
}

TEST(ConnectorRegistry, ANameThatIsTakenIsSaid) {
  ConnectorRegistry registry;
  ASSERT_TRUE(
      registry.add("ExampleConnector", [](const ConnectorParameters&, const ConnectorContext&) { return Result<ConnectorHalves>(); }));
  registry.add_library(QUIRE_EXAMPLE_CONNECTORS);
  EXPECT_TRUE(has(refusal(registry, "SimpleCPUOffloadConnector"), "there is a connector ExampleConnector already"));
}

}  // namespace
}  // namespace quire
