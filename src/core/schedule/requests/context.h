#pragma once
// The state that every part of the scheduler uses: configuration, seams, event sink, time of the call, and totals.
#include <cstdint>

#include "core/schedule/requests/event_stamp.h"
#include "quire/core.h"

namespace quire {

// Owned by Core::State and passed to each part by reference. The parts keep no copies, so that the time and the configuration are the same
// for all parts within a call.
struct Context {
  Context(const CoreConfig& given, const CoreSeams& given_seams)
      : config(resolved(given)),
        seams(given_seams),
        rules(given.decisions, given.fixes),
        num_groups(static_cast<std::uint32_t>(given.kv.groups.size())),
        events(given_seams.events) {}

  // Copied at creation and never changed, so a limit that was checked once holds as long as the core exists.
  const CoreConfig config;  // with cache_block_size resolved
  const CoreSeams seams;
  const DecisionRules rules;  // resolved here, once, from the profile and the fixes
  const std::uint32_t num_groups;
  EventStamp events;
  double now = 0.0;  // in seconds
  // Current values (running requests, free blocks) are not stored here. Core::counters() reads them from their owners.
  CoreCounters totals;  // only counts that never decrease

  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [config, seams, rules, num_groups, events, now, totals] = self;
    form(events, now, totals);
  }

 private:
  static CoreConfig resolved(CoreConfig config) {
    config.cache_block_size = config.cache_block_size == 0 ? config.block_size : config.cache_block_size;
    return config;
  }
};

}  // namespace quire
