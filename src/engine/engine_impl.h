#pragma once
// The engine around any worker. EngineBuilder (create.cpp) builds it around a model on this machine.
// Made by the thread that wants an engine. Clients call the members of Engine from any thread; run() and what is said to be the engine
// thread's has a thread of its own, from the constructor to the end of stop(). Nothing that a client asks may stop it.
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
  EngineImpl(const EngineOptions& options, const ModelInfo& model, std::unique_ptr<Core> core, StepLoop::Options loop, EngineParts parts);
  ~EngineImpl() override;

  Result<RequestId> submit(EngineRequest request, OutputSink& sink) override;
  Result<RequestId> fork(RequestId parent, const EngineFork& fork, OutputSink& sink) override;
  Result<void> append(RequestId session, std::vector<TokenId> tokens) override;
  void finish(RequestId id, FinishReason reason) override;
  void reset_prefix_cache(const CacheResetOptions& options, ControlAnswer answer) override;
  void pause(const PauseOptions& options, ControlAnswer answer) override;
  void resume(ControlAnswer answer) override;
  void explain(std::string name, ExplainAnswer answer) override;
  void watch(std::shared_ptr<WatchFrame> frame, WatchAnswer answer) override;
  void probe(EngineRequest request, ProbeAnswer answer) override;
  void save_journal(JournalSaveAnswer answer) override;
  void cache_curve(std::optional<std::string> tenant, CurveAnswer answer) override;
  Result<AdapterInfo> load_adapter(const std::string& name, const std::string& path, bool replace) override;
  Result<void> unload_adapter(const std::string& name) override;
  [[nodiscard]] std::vector<AdapterInfo> adapters() const override;
  Result<std::shared_ptr<const AdapterLease>> lease_adapter(const std::string& name, bool may_read) override;
  [[nodiscard]] EngineStats stats() const override;
  [[nodiscard]] const ModelInfo& model() const override { return model_; }
  [[nodiscard]] const EngineOptions& options() const override { return options_; }
  std::uint32_t stop(double timeout_s) override;

 private:
  // Any thread, all four.
  [[nodiscard]] Result<void> check_adapters() const;
  [[nodiscard]] Result<void> check(EngineRequest& request) const;
  Result<RequestId> submit_checked(EngineRequest request, OutputSink& sink);
  void decline(const std::optional<KvTransferParams>& params) const;
  // The engine thread's, all seven (stats_now also of the constructor, before that thread is there).
  void run();
  void handle(Intake& intake);
  void answer_look(Look& look);
  void answer_probe(const Probe& probe);
  [[nodiscard]] std::optional<double> load_s(const CacheProbe& probe) const;
  void publish(const Intake& intake);
  [[nodiscard]] EngineStats stats_now();
  void tell_of_tiers();

  // Until log_: never changed after construction, so any thread may read them (of the tiers: the pointers).
  const EngineOptions options_;
  const CoreConfig core_config_;
  const ModelInfo model_;
  const WorkerCapabilities capabilities_;
  const KvTiers tiers_;
  const std::shared_ptr<KvSwap> swap_;               // may be null
  const std::shared_ptr<AdapterRegistry> adapters_;  // the same
  const std::shared_ptr<const Clock> clock_;
  const std::shared_ptr<KvEventPublisher> kv_events_;  // may be null
  std::vector<KvEvent> tier_events_;                   // of one round
  const std::shared_ptr<CoreJournal> journal_;         // may be null
  EngineLog log_;                                      // the engine thread's while it runs
  Inbox inbox_;
  std::atomic<bool> has_news_ = false;   // of a transfer or a grammar, and no step has looked yet
  StepLoop loop_;                        // the engine thread's
  Controls controls_ = Controls(loop_);  // the engine thread's
  mutable std::mutex stats_mutex_;
  // As of the last step, for clients; guarded by stats_mutex_.
  EngineStats stats_;
  // Guards stopped_.
  std::mutex stop_mutex_;
  bool stopped_ = false;
  std::atomic<bool> is_stopping_ = false;
  std::uint32_t num_aborted_ = 0;  // written by the engine thread, read after it was joined
  std::thread thread_;             // last: it uses all the others
};

}  // namespace quire
