// Tests that the memory of checked schemas returns the result of each schema.
#include "server/request/schema_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "quire/base/structured_output.h"

namespace quire {
namespace {

TEST(SchemaMemoryResults, AreThoseOfEachSchema) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  SchemaMemory memory;
  const auto schema = [](const std::string& type, char filler) {
    return R"({"type":")" + type + R"(","description":")" + std::string(std::size_t{1} << 20, filler) + "\"}";
  };
  // Six schemas of 1 MiB do not all stay in memory.
  for (int round = 0; round < 2; ++round)
    for (const char filler : {'a', 'b', 'c'}) {
      EXPECT_TRUE(memory.check(schema("object", filler), false)) << round;
      EXPECT_FALSE(memory.check(schema("objekt", filler), false)) << round;
    }
  const std::string loose = R"({"type":"object","properties":{"a":{"type":"string"}},"not":{"type":"null"}})";
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(memory.check(loose, false)) << "strict and loose results are separate";
    EXPECT_TRUE(memory.check(loose, true));
  }
  const std::string large = R"({"type":"object","description":")" + std::string(std::size_t{5} << 20, 'x') + "\"}";
  for (int round = 0; round < 2; ++round) EXPECT_TRUE(memory.check(large, false));
  EXPECT_FALSE(memory.check(schema("objekt", 'a'), false));
}

}  // namespace
}  // namespace quire
