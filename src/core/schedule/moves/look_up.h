#pragma once
// Finds the tokens that a waiting request has already: in the local prefix cache, then through the connector. Also moves requests out of
// the blocked states.
//
//   waiting_for_remote_kv -> waiting, preempted   its transfer is over: loaded blocks are cached; without any, its blocks are freed
//   waiting_for_grammar -> waiting                its grammar is compiled
#include <cstdint>
#include <optional>

#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/requests.h"
#include "quire/base/kv_stats.h"
#include "quire/cache_probe.h"

namespace quire {

// The tokens that a waiting request has before it runs. They are found, not taken: other requests may take the blocks of `hit` until
// allocate_slots() attaches them, which must happen before any other allocation.
struct Computed {
  // The part in the local prefix cache. It is a view, valid until the next search.
  KvHit hit;
  // Tokens after the hit that the connector has.
  std::uint32_t num_external = 0;
  std::uint32_t num_connector_queries = 0;  // tokens that the connector was asked about; 0: it was not asked
  bool load_async = false;
  bool was_looked_up = false;   // in the prefix cache, because it had no computed tokens
  bool is_counted = false;      // the look-up was counted
  std::int32_t num_tokens = 0;  // total
};

class PrefixLookUp {
 public:
  PrefixLookUp(Context& context, KvCacheManager& kv, Requests& requests) : context_(context), kv_(kv), requests_(requests) {}

  // Looks up the request. nullopt: the connector does not know yet. `counts_now` false: only note_admission() counts the look-up, because
  // the request may be looked up in many steps before it is admitted.
  std::optional<Computed> find(Request& request, bool counts_now = true);
  // Looks up a request without blocks before its turn. Returns what would be loaded while it waits; nullopt: nothing. Not counted until
  // note_load().
  std::optional<Computed> find_load(Request& request);
  // Returns what find() would find for a request that is not in the core, tier by tier. Nothing is counted or reported.
  [[nodiscard]] CacheProbe probe(const Request& request);
  // Called when the request has its blocks. Counts its look-up if find() did not.
  void note_admission(Request& request, const Computed& computed);
  // Called when the request has its blocks and waits for their content.
  void note_load(Request& request, const Computed& computed);
  // Reports to the connector that the request has its blocks. A request that waited for a transfer is reported twice: when the transfer
  // begins, and with no external tokens when it is admitted.
  void notify_connector(const Request& request, const Computed& computed);
  // Moves a blocked request out of its state. False: it stays blocked.
  bool try_promote(Request& request);

  void connector_was_reset() { connector_stats_.reset |= context_.config.report.log_stats; }
  // Returns the statistics of connector look-ups since the last call (with log_stats).
  PrefixCacheStats take_connector_stats();

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). The binding must name every member to compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, requests, connector_stats] = self;
    form(connector_stats);
  }

 private:
  [[nodiscard]] bool reads_cache(const Request& request) const;
  void count(const Request& request, const KvHit& hit);
  void report_prefix(const Request& request, const KvHit& hit);
  void report_look_up(const Request& request, const Computed& computed);
  // Asks the connector for tokens after the local hit. False: it does not know yet.
  bool ask(const Request& request, bool can_add, Computed& computed);
  void take_received(Request& request);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  PrefixCacheStats connector_stats_;
};

}  // namespace quire
