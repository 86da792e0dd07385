#pragma once
// What a waiting request has already: the local prefix cache, then the connector. And the way out of the blocked states.
//
//   waiting_for_remote_kv -> waiting, preempted   when its transfer is over: what arrived becomes findable, or, if nothing did, its blocks
//                                                 go back
//   waiting_for_grammar -> waiting                when its grammar is compiled
#include <cstdint>
#include <optional>

#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/requests.h"
#include "quire/base/kv_stats.h"
#include "quire/cache_probe.h"

namespace quire {

// What a waiting request has before it runs.
// Found, not taken: the blocks of `hit` may go to others until allocate_slots() has attached them, which must be before anything else
// allocates.
struct Computed {
  // The local prefix cache's part; a view into it, valid until the next search.
  KvHit hit;
  // Tokens behind the hit that the connector has.
  std::uint32_t num_external = 0;
  std::uint32_t num_connector_queries = 0;  // tokens asked of the connector; 0: it was not asked
  bool load_async = false;
  bool was_looked_up = false;   // it had nothing of its own
  std::int32_t num_tokens = 0;  // in all
};

class LookUp {
 public:
  LookUp(Context& context, KvCacheManager& kv, Requests& requests) : context_(context), kv_(kv), requests_(requests) {}

  // nullopt: the connector does not know yet.
  std::optional<Computed> find(Request& request);
  // Of one that has nothing, before its turn: what would be loaded while it waits; nullopt: nothing would. Not counted, until note_load().
  std::optional<Computed> find_load(Request& request);
  // Of one that nobody knows: what find() would find of it, tier by tier. Nothing is counted or told.
  [[nodiscard]] CacheProbe probe(const Request& request);
  // It has its blocks (DecisionRules::hits_count_at_admission: the look-up counts now).
  void note_admission(Request& request, const Computed& computed);
  // It has its blocks and waits for them.
  void note_load(Request& request, const Computed& computed);
  // The request has its blocks. A request that waited for a transfer is reported twice: when the transfer begins, and with no external
  // tokens when it is admitted.
  void notify_connector(const Request& request, const Computed& computed);
  // The request is in a blocked state; false: it stays there.
  bool try_promote(Request& request);

  void connector_was_reset() { connector_stats_.reset |= context_.config.report.log_stats; }
  // With log_stats: of what the connector was asked, since the last call.
  PrefixCacheStats take_connector_stats();

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, requests, connector_stats] = self;
    form(connector_stats);
  }

 private:
  void count(const Request& request, const KvHit& hit);
  void tell(const Request& request, const Computed& computed);
  // What the connector has beyond the local hit. False: it does not know yet.
  bool ask(const Request& request, bool can_add, Computed& computed);
  void take_received(Request& request);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  PrefixCacheStats connector_stats_;
};

}  // namespace quire
