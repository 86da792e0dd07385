#pragma once
// A core in the midst of its steps, one part of which a test spoils.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/state.h"
#include "quire/base/api.h"

namespace quire::test {

// Request 1 runs, request 2 waits, and no plan is outstanding.
class QUIRE_HIDDEN SpoiledStep : public ::testing::Test {
 protected:
  static Core::State& begun(CoreDriver& d) {
    d.add(1, 8, 20);
    d.step();
    d.add(2, 8, 20);
    d.core->check_invariants();
    return *d.core->state_;
  }

  CoreDriver d = CoreDriver(sync_config());
  Core::State& s = begun(d);
  Request& runs = *s.table.find_any(RequestId{1});
  Request& waits = *s.table.find_any(RequestId{2});
};

}  // namespace quire::test
