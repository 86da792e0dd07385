#pragma once
// The state that every part of the scheduler sees: configuration, seams, event sink, time of the call, and totals.
#include <cstdint>

#include "core/schedule/requests/event_stamp.h"
#include "quire/core.h"

namespace quire {

// Owned by Core::State and handed to each part by reference. Parts keep no copies of what is here, so that there is one time and one
// configuration per call.
struct Context {
  Context(const CoreConfig& given, const CoreSeams& given_seams)
      : config(resolved(given)),
        seams(given_seams),
        rules(given.decisions, given.fixes),
        num_groups(static_cast<std::uint32_t>(given.kv.groups.size())),
        events(given_seams.events) {}

  // Copied at creation and never changed: a limit that is checked once holds for the life of the core.
  const CoreConfig config;  // with cache_block_size resolved
  const CoreSeams seams;
  const DecisionRules rules;  // resolved here, once, from the profile and the fixes
  const std::uint32_t num_groups;
  EventStamp events;
  double now = 0.0;  // in seconds
  // Levels (running requests, free blocks) are not counted here. Core::counters() reads them where they are kept.
  CoreCounters totals;  // only growing counts

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
