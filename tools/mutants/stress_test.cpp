// The short run of the core's random events, registered by the suites as a separate program.
#include <gtest/gtest.h>

int core_stress_main(int argc, char** argv);

TEST(CoreStress, ShortRun) {
  char name[] = "core_stress", option[] = "--events", value[] = "200000";
  char* arguments[] = {name, option, value};
  EXPECT_EQ(core_stress_main(3, arguments), 0);
}
