#pragma once
// The engine around any worker. EngineBuilder (create.cpp) builds it for a model on this machine. Clients call the members of Engine from
// any thread. The engine thread executes run() from the constructor to the end of stop(). No client request may stop the program.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/adapters/adapter_registry.h"
#include "engine/engine_log.h"
#include "engine/engine_parts.h"
#include "engine/loop/controls.h"
#include "engine/loop/step_loop.h"
#include "engine/publish/kv_event_publisher.h"
#include "engine/requests/inbox.h"
#include "engine/tiers/kv_swap.h"
#include "engine/tiers/kv_tier.h"
#include "quire/base/clock.h"
#include "runtime/worker/worker.h"

namespace quire {

class EngineImpl final : public Engine {
 public:
  EngineImpl(ResolvedEngine resolved, std::unique_ptr<Core> core, StepLoop::Options loop, EngineParts parts);
  ~EngineImpl() override;

  Result<RequestId> submit(EngineRequest request, OutputSink& sink) override;
  Result<RequestId> fork(RequestId parent, const EngineFork& fork, OutputSink& sink) override;
  Result<void> append(RequestId session, std::vector<TokenId> tokens) override;
  void finish(RequestId id, FinishReason reason) override;
  void reset_prefix_cache(const CacheResetOptions& options, ControlCallback answer) override;
  void reset_encoder_cache(ControlCallback answer) override;
  void pause(const PauseOptions& options, ControlCallback answer) override;
  void resume(ControlCallback answer) override;
  void explain(std::string name, ExplainCallback answer) override;
  void watch(std::shared_ptr<WatchFrame> frame, WatchCallback answer) override;
  void probe(EngineRequest request, ProbeCallback answer) override;
  void save_journal(JournalSaveCallback answer) override;
  void cache_curve(std::optional<std::string> tenant, CurveCallback answer) override;
  Result<AdapterInfo> load_adapter(const std::string& name, const std::string& path, bool replace) override;
  Result<void> unload_adapter(const std::string& name) override;
  [[nodiscard]] std::vector<AdapterInfo> adapters() const override;
  Result<std::shared_ptr<const AdapterLease>> lease_adapter(const std::string& name, bool may_read) override;
  [[nodiscard]] EngineStats stats() const override;
  [[nodiscard]] const ModelInfo& model() const override { return resolved_.model; }
  [[nodiscard]] const EngineOptions& options() const override { return resolved_.options; }
  std::uint32_t stop(double timeout_s) override;

 private:
  // Any thread may call the next four functions.
  [[nodiscard]] Result<void> check_adapters() const;
  [[nodiscard]] Result<void> check(EngineRequest& request) const;
  Result<RequestId> submit_checked(EngineRequest request, OutputSink& sink);
  void decline(const std::optional<KvTransferParams>& params) const;
  // Only the engine thread calls the following functions. The constructor also calls stats_now(), before that thread exists.
  void run();
  void handle(InboxBatch& intake);
  void answer_watch(WatchQuery& look);
  void answer_probe(const ProbeQuery& probe);
  [[nodiscard]] std::optional<double> load_s(const CacheProbe& probe) const;
  void publish(const InboxBatch& intake);
  [[nodiscard]] EngineStats stats_now();
  void publish_tier_events();

  // Const members never change after construction, so any thread may read them. (For tiers, this applies to the pointers.)
  const ResolvedEngine resolved_;
  const WorkerCapabilities capabilities_;
  const KvTiers tiers_;
  const std::shared_ptr<KvSwap> swap_;               // may be null
  const std::shared_ptr<AdapterRegistry> adapters_;  // may be null
  const std::shared_ptr<const Clock> clock_;
  const std::shared_ptr<KvEventPublisher> kv_events_;  // may be null
  std::vector<KvEvent> tier_events_;                   // events of the tiers in one round of run()
  const std::shared_ptr<CoreJournal> journal_;         // may be null
  EngineLog log_;                                      // used by the engine thread while it runs
  Inbox inbox_;
  std::atomic<bool> has_updates_ = false;  // a transfer or a compilation has ended, and run() has not handled it yet
  StepLoop loop_;                          // used by the engine thread while it runs
  Controls controls_ = Controls(loop_);    // used by the engine thread
  mutable std::mutex stats_mutex_;
  // Statistics after the last round of run(), for clients; guarded by stats_mutex_.
  EngineStats stats_;
  // Guards stopped_.
  std::mutex stop_mutex_;
  bool stopped_ = false;
  std::atomic<bool> is_stopping_ = false;
  std::uint32_t num_aborted_ = 0;  // written by the engine thread, read after it was joined
  std::thread thread_;             // declared last because it uses all other members
};

}  // namespace quire
