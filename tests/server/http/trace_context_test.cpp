// Tests the fields of a traceparent header.
#include "server/http/trace_context.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(TraceParents, HaveFieldsAtTheirPlaces) {
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736", parent = "00f067aa0ba902b7";
  EXPECT_TRUE(parse_traceparent("00-" + trace + "-" + parent + "-01"));
  EXPECT_TRUE(parse_traceparent("00-" + std::string(31, '0') + "a-" + std::string(15, '0') + "9-00"));
  for (const char flag : {'1', '3', '5', '7', '9', 'b', 'd', 'f'})
    EXPECT_TRUE(parse_traceparent("00-" + trace + "-" + parent + "-0" + flag)->is_sampled) << flag;
  for (const char flag : {'0', '2', '4', '6', '8', 'a', 'c', 'e'})
    EXPECT_FALSE(parse_traceparent("00-" + trace + "-" + parent + "-0" + flag)->is_sampled) << flag;
  for (const std::string& wrong :
       {"00-" + trace + "_" + parent + "-01", "00-" + trace + "-" + parent + "_01", "0g-" + trace + "-" + parent + "-01",
        "0/-" + trace + "-" + parent + "-01", "0:-" + trace + "-" + parent + "-01", "0`-" + trace + "-" + parent + "-01",
        "00-" + trace + "-" + parent + "-g1", "00-" + trace.substr(1) + "g-" + parent + "-01",
        "00-" + trace + "-" + parent.substr(1) + "g-01", "cc-" + trace + "-" + parent + "-01x"})
    EXPECT_FALSE(parse_traceparent(wrong)) << wrong;
}

}  // namespace
}  // namespace quire
