#pragma once
// Helpers that fork requests of a CoreDriver.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"

namespace quire::test {

inline Result<void> fork(CoreDriver& d, std::uint64_t parent, const ForkRequest& child) {
  return d.core->fork(RequestId{parent}, child, {.now = d.now});
}

inline void must_fork(CoreDriver& d, std::uint64_t parent, std::uint64_t child) {
  const auto forked = fork(d, parent, {.id = RequestId{child}, .arrival_time = static_cast<double>(child)});
  ASSERT_TRUE(forked.has_value()) << forked.error().to_string();
  d.core->check_invariants();
}

struct Refused {
  const char* field;
  ErrorCode code;
};

inline void expect_refused(CoreDriver& d, std::uint64_t parent, const ForkRequest& child, Refused refused) {
  const auto forked = fork(d, parent, child);
  ASSERT_FALSE(forked.has_value());
  EXPECT_EQ(forked.error().field, refused.field) << forked.error().to_string();
  EXPECT_EQ(forked.error().code, refused.code) << forked.error().to_string();
  d.core->check_invariants();
}

}  // namespace quire::test
