#pragma once
// What every part of the scheduler sees: the configuration, the seams, the sink of events, the time of the call, and the totals.
#include <cstdint>

#include "core/schedule/requests/event_stamp.h"
#include "quire/core.h"

namespace quire {

// Owned by Core::State and handed to each part by reference. Parts keep nothing of their own that lies here already, so that there is one
// time and one configuration per call.
struct Context {
  Context(const CoreConfig& given, const CoreSeams& given_seams)
      : config(resolved(given)),
        seams(given_seams),
        rules(rules_of(given.decisions)),
        num_groups(static_cast<std::uint32_t>(given.kv.groups.size())),
        events(given_seams.events) {}

  // Copied at creation and never changed: a limit that is checked once holds for the life of the core.
  const CoreConfig config;  // cache_block_size is written out
  const CoreSeams seams;
  const DecisionRules rules;  // by the configuration
  const std::uint32_t num_groups;
  EventStamp events;
  double now = 0.0;  // s
  // What is a level (how many run, how many blocks are free) is not counted here but read where it lies (Core::counters()).
  CoreCounters totals;  // the growing ones

  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
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
