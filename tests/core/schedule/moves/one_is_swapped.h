#pragma once
// Helpers that make a core in which one request is swapped out.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"

namespace quire::test {

inline CoreConfig swapping_config() {
  CoreConfig config = sync_config(5);
  config.swap = {.num_swap_slots = 4, .swap_choice = SwapChoice::always};
  return config;
}

// Makes a core in which request 2 is swapped out and its store is open.
inline CoreDriver one_is_swapped() {
  CoreDriver d(swapping_config());
  d.add(1, 8, 8);
  d.add(2, 7, 8);
  d.step();
  d.step();
  EXPECT_EQ(d.core->counters().num_swapped_out, 1U);
  return d;
}

}  // namespace quire::test
