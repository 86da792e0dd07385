#pragma once
// Finds the tokens that a waiting request need not compute: in the local prefix cache, then through the connector. Also moves requests out
// of the blocked states.
//
//   waiting_for_remote_kv -> waiting, preempted   its transfer has ended: the loaded blocks are cached; without loaded blocks, its
//                                                 blocks are freed
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

// The tokens that a waiting request need not compute. The blocks of `hit` are not taken yet: other requests may take them until
// allocate_slots() attaches the hit, so no other allocation may come first.
struct Computed {
  // Tokens in the local prefix cache. A view, valid until the next search.
  KvHit hit;
  // Number of tokens after the hit that the connector can load.
  std::uint32_t num_external = 0;
  std::uint32_t num_connector_queries = 0;  // tokens that the connector was asked about; 0 if it was not asked
  bool load_async = false;
  bool was_looked_up = false;   // the request had no computed tokens, so the prefix cache was searched
  bool is_counted = false;      // the look-up was counted
  std::int32_t num_tokens = 0;  // total of computed, hit and external tokens
};

class PrefixLookUp {
 public:
  PrefixLookUp(Context& context, KvCacheManager& kv, Requests& requests) : context_(context), kv_(kv), requests_(requests) {}

  // Looks up the request. Returns nullopt if the connector does not know yet. If `counts_now` is false, only note_admission() counts the
  // look-up, because the request may be looked up in many steps before it is admitted.
  std::optional<Computed> find(Request& request, bool counts_now = true);
  // Looks up a request without blocks before its turn. Returns what could be loaded while it waits, or nullopt if nothing. The look-up
  // counts only with note_load().
  std::optional<Computed> find_load(Request& request);
  // Returns what find() would find for a request that is not in the core, tier by tier. Counts and reports nothing.
  [[nodiscard]] CacheProbe probe(const Request& request);
  // Called when the request has its blocks. Counts its look-up if find() did not.
  void note_admission(Request& request, const Computed& computed);
  // Called when the request has its blocks and waits for their content.
  void note_load(Request& request, const Computed& computed);
  // Reports to the connector that the request has its blocks. A request that waited for a transfer is reported twice: when the transfer
  // begins, and with no external tokens when it is admitted.
  void notify_connector(const Request& request, const Computed& computed);
  // Moves a blocked request out of its state if the reason has ended. Returns false if the request stays blocked.
  bool try_promote(Request& request);

  void connector_was_reset() { connector_stats_.reset |= context_.config.report.log_stats; }
  // Returns the statistics of connector look-ups since the last call (with log_stats).
  PrefixCacheStats take_connector_stats();

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
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
  // Asks the connector for tokens after the local hit. Returns false if the connector does not know yet.
  bool ask(const Request& request, bool can_add, Computed& computed);
  void take_received(Request& request);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  PrefixCacheStats connector_stats_;
};

}  // namespace quire
