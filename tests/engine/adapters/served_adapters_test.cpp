// Tests an engine that serves adapters around a worker that looks up each adapter late: at the end of the step that admits the request.
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/adapters/made_adapters.h"
#include "engine/simulated_engine.h"

namespace quire {
namespace {

// Records the digest of the adapter with which each request was admitted. A request without an adapter has no entry.
class SeenAdapters {
 public:
  void put(RequestId id, std::string digest) {
    const std::lock_guard lock(mutex_);
    seen_[id] = std::move(digest);
  }
  std::map<RequestId, std::string> all() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  std::string of(RequestId id) { return all()[id]; }
  std::vector<std::string> digests() {
    std::vector<std::string> digests;
    for (const auto& [id, digest] : all()) digests.push_back(digest);
    return digests;
  }

 private:
  std::mutex mutex_;
  std::map<RequestId, std::string> seen_;
};

class AdaptedWorker final : public SimulatedWorker {
 public:
  AdaptedWorker(SimulatedWorkerOptions options, std::shared_ptr<const AdapterSource> source, SeenAdapters& seen)
      : SimulatedWorker(std::move(options)), source_(std::move(source)), seen_(seen) {}

  void start(const StepPlan& plan) override {
    looked_for_.clear();
    for (const AdmittedRequest& request : plan.admitted)
      if (request.lora_id != 0) looked_for_.emplace_back(request.id, request.lora_id);
    SimulatedWorker::start(plan);
  }
  WorkerResult finish() override {
    for (const auto& [request, id] : looked_for_) seen_.put(request, source_->find(id)->digest);
    return SimulatedWorker::finish();
  }

 private:
  std::shared_ptr<const AdapterSource> source_;
  SeenAdapters& seen_;
  std::vector<std::pair<RequestId, std::int64_t>> looked_for_;
};

class ServedAdaptersTest : public testing::TestWithParam<Mode> {
 protected:
  static constexpr std::uint32_t kPrompt = 65;  // four full blocks, and a token that is always computed

  ServedAdaptersTest() {
    folders_.put("/a", "bytes of a");
    folders_.put("/b", "bytes of b");
    folders_.put("/copy", "bytes of a");
    options_.adapters = {.max_loras = 2, .max_cpu_loras = 4, .modules = {}};
  }

  void start_engine() {
    EngineOptions options = options_;
    options.scheduler.async_scheduling = GetParam().async_scheduling;
    options.cache.num_blocks = 200;
    const ResolvedEngine resolved = resolve_options(options, simulated_model(), {1, 0}).value();
    const EngineAdapters adapters{.registry = std::make_shared<AdapterRegistry>(resolved.options.adapters.max_cpu_loras, folders_.loader()),
                                  .live = std::make_shared<LiveAdapters>()};
    SimulatedWorkerOptions worker{.limits = resolved.limits,
                                  .block_size = resolved.options.cache.block_size,
                                  .num_blocks = resolved.options.cache.num_blocks,
                                  .vocab_size = kVocab,
                                  .before_step = [this](const StepPlan&) { gate_.pass(); },
                                  .num_threads = GetParam().worker_threads};
    gate_.open_for_good();
    engine_ =
        make_engine(resolved, {.worker = std::make_unique<AdaptedWorker>(std::move(worker), adapters.live, seen_), .adapters = adapters})
            .value();
    for (const char* name : {"a", "b", "copy"}) ASSERT_TRUE(engine_->load_adapter(name, std::string("/") + name));
  }
  ~ServedAdaptersTest() override { gate_.open_for_good(); }

  static EngineRequest request_with(std::string adapter, std::uint32_t length = kPrompt, std::uint32_t max_tokens = 4) {
    EngineRequest request = make_request(length, max_tokens);
    request.sampling.ignore_eos = true;
    request.adapter = std::move(adapter);
    return request;
  }
  RequestId submit(EngineRequest request) { return engine_->submit(std::move(request), sink_).value(); }
  // Runs a request with this adapter to its end and returns how many tokens it found in the cache.
  std::uint32_t cached(const std::string& adapter) { return sink_.wait(submit(request_with(adapter))).num_cached_tokens; }
  bool is_in_use(const std::string& name) {
    // The adapter stays in memory without its name.
    const std::uint32_t before = engine_->stats().adapters->num_resident;
    EXPECT_TRUE(engine_->unload_adapter(name));
    return engine_->stats().adapters->num_resident == before;
  }

  test::MadeAdapters folders_;
  EngineOptions options_;
  Collector sink_;
  SeenAdapters seen_;
  Gate gate_;
  std::unique_ptr<Engine> engine_;
};

// Servers with tenants give each tenant a separate cache salt.
TEST_P(ServedAdaptersTest, ATenantDoesNotHitBlocksOfAnotherTenantsAdapter) {
  start_engine();
  const auto cached_for = [this](const char* tenant, const std::string& adapter) {
    EngineRequest request = request_with(adapter);
    request.cache_salt = tenant;
    return sink_.wait(submit(std::move(request))).num_cached_tokens;
  };
  EXPECT_EQ(cached_for("ann", "a"), 0U);
  for (const char* adapter : {"a", "copy", "b", ""})
    EXPECT_EQ(cached_for("ben", adapter), adapter == std::string("copy") ? 64U : 0U) << adapter;
  EXPECT_EQ(cached_for("ann", "copy"), 64U) << "the tenant's own blocks of equal weights are found";
  EXPECT_EQ(cached_for("ann", "b"), 0U);
}

TEST_P(ServedAdaptersTest, TheWorkerFindsTheAdapterOfEachRequest) {
  start_engine();
  const RequestId with_a = submit(request_with("a")), with_b = submit(request_with("b")), without = submit(request_with(""));
  for (const RequestId id : {with_a, with_b, without}) sink_.wait(id);
  EXPECT_EQ(seen_.all(), (std::map<RequestId, std::string>{{with_a, "bytes of a"}, {with_b, "bytes of b"}}));
}

TEST_P(ServedAdaptersTest, BlockHashesDependOnAdapterContentAndNotOnItsName) {
  start_engine();
  EXPECT_EQ(cached(""), 0U);
  EXPECT_EQ(cached("a"), 0U);
  EXPECT_EQ(cached("b"), 0U);
  EXPECT_EQ(cached(""), 64U);
  EXPECT_EQ(cached("a"), 64U);
  EXPECT_EQ(cached("b"), 64U);
  EXPECT_EQ(cached("copy"), 64U);  // the same bytes as "a"
  folders_.put("/a", "other bytes");
  ASSERT_TRUE(engine_->load_adapter("a", "/a", true));
  EXPECT_EQ(cached("a"), 0U);
  EXPECT_EQ(cached("copy"), 64U);
}

TEST_P(ServedAdaptersTest, AProbeLooksForBlocksOfItsAdapter) {
  start_engine();
  EXPECT_EQ(cached("a"), 0U);
  const auto found = [this](const std::string& adapter) {
    std::promise<std::uint32_t> promise;
    engine_->probe(request_with(adapter), [&](Result<EngineProbe> probe) { promise.set_value(probe.value().cache.num_local_tokens); });
    return promise.get_future().get();
  };
  EXPECT_EQ(found("a"), 64U);
  EXPECT_EQ(found("copy"), 64U);
  EXPECT_EQ(found("b"), 0U);
  EXPECT_EQ(found(""), 0U);
  engine_->probe(request_with("x"), [](const Result<EngineProbe>& probe) { EXPECT_EQ(probe.error().code, ErrorCode::not_found); });
}

TEST_P(ServedAdaptersTest, RefusesUnknownAdapters) {
  start_engine();
  const auto refused = engine_->submit(request_with("x"), sink_);
  EXPECT_EQ(refused.error().code, ErrorCode::not_found);
  EXPECT_EQ(refused.error().field, "adapter");
  ASSERT_TRUE(engine_->unload_adapter("a"));
  EXPECT_EQ(engine_->submit(request_with("a"), sink_).error().code, ErrorCode::not_found);
}

TEST_P(ServedAdaptersTest, ARequestHoldsItsAdapterUntilItHasEnded) {
  start_engine();
  gate_.close();
  const RequestId id = submit(request_with("a"));
  ASSERT_TRUE(engine_->unload_adapter("copy"));
  EXPECT_TRUE(is_in_use("a"));
  gate_.open_for_good();
  EXPECT_EQ(sink_.wait(id).tokens.size(), 4U);
  EXPECT_EQ(seen_.of(id), "bytes of a");
  engine_->stop(10.0);
  EXPECT_EQ(engine_->stats().adapters->num_resident, 1U);
}

TEST_P(ServedAdaptersTest, SiblingsHaveTheAdapterToo) {
  start_engine();
  EngineRequest request = request_with("a");
  request.n = 3;
  const RequestId first = submit(std::move(request));
  for (std::uint32_t i = 0; i < 3; ++i) sink_.wait({first.value + i});
  EXPECT_EQ(seen_.digests(), (std::vector<std::string>(3, "bytes of a")));
}

TEST_P(ServedAdaptersTest, AForkKeepsTheAdapterOfItsParent) {
  start_engine();
  gate_.close();
  const RequestId parent = submit(request_with("a", kPrompt, 100));
  gate_.permits.release(5);
  sink_.wait_for_tokens(parent, 2);
  ASSERT_TRUE(engine_->unload_adapter("a"));
  ASSERT_TRUE(engine_->unload_adapter("copy"));
  const auto child = engine_->fork(parent, {.seed = 1}, sink_);
  ASSERT_TRUE(child) << child.error().to_string();
  gate_.open_for_good();
  engine_->finish(parent, FinishReason::abort);
  gate_.open_for_good();
  EXPECT_EQ(sink_.wait(*child).tokens.size(), 100U);
  EXPECT_EQ(seen_.of(*child), "bytes of a");
  engine_->stop(10.0);
  EXPECT_EQ(engine_->stats().adapters->num_resident, 1U);
}

TEST_P(ServedAdaptersTest, ASessionKeepsItsAdapter) {
  start_engine();
  EngineRequest request = request_with("b", 20, 3);
  request.session = true;
  const RequestId id = submit(std::move(request));
  sink_.wait_for_inputs(id, 1);
  EXPECT_TRUE(is_in_use("b"));
  ASSERT_TRUE(engine_->append(id, {1, 2, 3}));
  sink_.wait_for_inputs(id, 2);
  ASSERT_TRUE(engine_->append(id, {}));
  EXPECT_EQ(sink_.wait(id).tokens.size(), 6U);
  engine_->stop(10.0);
  EXPECT_EQ(engine_->stats().adapters->num_resident, 1U);
}

TEST_P(ServedAdaptersTest, EveryBeamOfASearchHasTheAdapter) {
  start_engine();
  EngineRequest request = request_with("b", kPrompt, 8);
  request.n = 3;
  request.beam_search = BeamSearchOptions{};
  const RequestId first = submit(std::move(request));
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_FALSE(sink_.wait({first.value + i}).tokens.empty());
  const std::vector<std::string> digests = seen_.digests();
  EXPECT_GT(digests.size(), 3U);
  for (const std::string& digest : digests) EXPECT_EQ(digest, "bytes of b");
  EXPECT_EQ(cached("b"), 64U);
  EXPECT_EQ(cached(""), 0U);
}

// Clients abort while the step that admits their requests is in flight.
TEST_P(ServedAdaptersTest, RequestsMayEndWhileTheStepThatAdmitsThemRuns) {
  start_engine();
  Random random(7);
  for (int i = 0; i < 300; ++i) {
    EngineRequest request = request_with(random.chance(0.5) ? "a" : "b", 20, 6);
    const bool is_search = random.chance(0.5);
    if (is_search) request.beam_search = BeamSearchOptions{};
    if (random.chance(0.5)) request.n = 3;
    const std::uint32_t n = request.n;
    const RequestId first = submit(std::move(request));
    if (random.chance(0.3)) sink_.wait_for_tokens(first, 1);
    for (std::uint32_t k = 0; k < n; ++k) engine_->finish({first.value + k}, FinishReason::abort);
    for (std::uint32_t k = 0; k < n; ++k) sink_.wait({first.value + k});
    if (random.chance(0.2)) {
      const std::string name = random.chance(0.5) ? "a" : "b";
      ASSERT_TRUE(engine_->load_adapter(name, "/" + name, true));
    }
  }
  ASSERT_TRUE(engine_->unload_adapter("a"));
  ASSERT_TRUE(engine_->unload_adapter("b"));
  ASSERT_TRUE(engine_->unload_adapter("copy"));
  engine_->stop(10.0);
  EXPECT_EQ(engine_->stats().adapters->num_resident, 0U);
}

TEST_P(ServedAdaptersTest, NewRequestsUseTheNewWeightsAfterAReload) {
  start_engine();
  const RequestId before = submit(request_with("b", kPrompt, 100));
  folders_.put("/b", "newer bytes");
  ASSERT_TRUE(engine_->load_adapter("b", "/b", true));
  const RequestId after = submit(request_with("b"));
  sink_.wait(before);
  sink_.wait(after);
  EXPECT_EQ(seen_.of(before), "bytes of b");
  EXPECT_EQ(seen_.of(after), "newer bytes");
}

TEST_P(ServedAdaptersTest, UsesALeaseThatTheRequestBrings) {
  start_engine();
  EngineRequest request = request_with("a");
  request.adapter_lease = engine_->lease_adapter("a", false).value();
  ASSERT_NE(request.adapter_lease, nullptr);
  ASSERT_TRUE(engine_->unload_adapter("a"));
  const RequestId id = submit(std::move(request));
  sink_.wait(id);
  EXPECT_EQ(seen_.of(id), "bytes of a");
}

// One request waits because other requests use max_loras adapters in each step.
TEST_P(ServedAdaptersTest, ReportsRunningAndWaitingAdapters) {
  options_.adapters.max_loras = 1;
  start_engine();
  gate_.close();
  const RequestId first = submit(request_with("a", 20, 50)), second = submit(request_with("b", 20, 2));
  gate_.permits.release(5);
  sink_.wait_for_tokens(first, 4);  // one step passed the gate; two may have been planned before the second request came
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.running_adapters, std::vector<std::string>{"a"});
  EXPECT_EQ(stats.waiting_adapters, std::vector<std::string>{"b"});
  gate_.open_for_good();
  sink_.wait(first);
  sink_.wait(second);
  engine_->stop(10.0);
  EXPECT_TRUE(engine_->stats().running_adapters.empty());
  EXPECT_TRUE(engine_->stats().waiting_adapters.empty());
  EXPECT_EQ(engine_->stats().adapters->num_known, 3U);
}

INSTANTIATE_TEST_SUITE_P(Modes, ServedAdaptersTest, testing::Values(kModes[0], kModes[1], kModes[2]), mode_name);

TEST(ServedAdaptersOffTest, AnEngineWithoutAdaptersRefusesThem) {
  const auto engine = start(kModes[0], {});
  Collector sink;
  EngineRequest request = make_request(10, 2);
  request.adapter = "a";
  const auto refused = engine->submit(request, sink);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(refused.error().field, "adapter");
  EXPECT_NE(refused.error().remedy.find("--enable-lora"), std::string::npos);
  EXPECT_EQ(engine->load_adapter("a", "/a").error().field, "adapter");
  EXPECT_EQ(engine->unload_adapter("a").error().field, "adapter");
  EXPECT_EQ(engine->lease_adapter("a", true).error().field, "adapter");
  EXPECT_TRUE(engine->adapters().empty());
  EXPECT_FALSE(engine->stats().adapters.has_value());
}

}  // namespace
}  // namespace quire
