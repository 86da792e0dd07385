// The engine's two faces. Clients' threads call submit(), fork(), append(), finish(), stats() and the operator's verbs: they check, queue
// and return, and never touch the step loop while it runs. The engine thread runs run() from the constructor to the end of stop(): it alone
// has the core, the worker and the tiers. Nothing a client asks may stop the program or wait for a step.
#include "engine/engine_impl.h"

#include <algorithm>
#include <optional>

#include "core/kv/hash/hash_function.h"
#include "engine/check_served.h"
#include "engine/requests/block_names.h"
#include "engine/requests/validate_pictures.h"
#include "engine/requests/validate_request.h"
#include "engine/resolve_options.h"
#include "quire/journal.h"

namespace quire {

EngineImpl::EngineImpl(const EngineOptions& options, const ModelInfo& model, std::unique_ptr<Core> core, StepLoop::Options loop,
                       EngineParts parts)
    : options_(options),
      core_config_(core_config(options, model)),
      model_(model),
      capabilities_(parts.worker->capabilities()),
      tiers_(std::move(parts.tiers)),
      swap_(std::move(parts.swap)),
      adapters_(std::move(parts.adapters.registry)),
      clock_(loop.seams.clock),
      kv_events_(loop.kv_events),
      journal_(loop.journal),
      log_(loop.seams.logger),
      inbox_(options.scheduler.max_num_waiting, options.scheduler.max_num_seqs),
      loop_(std::move(core), std::move(parts.worker), std::move(loop)),
      stats_(stats_now()),
      thread_([this] { run(); }) {
  log_.started(model_, options_);
}

EngineImpl::~EngineImpl() {
  stop(0.0);
}

// What another server keeps for a request that is not taken here goes.
void EngineImpl::decline(const std::optional<KvTransferParams>& params) const {
  if (!params) return;
  for (const auto& tier : tiers_) tier->decline(*params);
}

Result<void> EngineImpl::check(EngineRequest& request) const {
  KvRole role = KvRole::none;
  for (const auto& tier : tiers_) role = tier->role() != KvRole::none ? tier->role() : role;
  if (auto valid = validate_transfer(request, role); !valid) return valid;
  if (auto valid = validate_request(request, options_, model_.vocab_size); !valid) return valid;
  if (auto valid = validate_rows(request, model_.hidden_size); !valid) return valid;
  if (auto valid = validate_pictures(request, model_.pictures); !valid) return valid;
  if (auto valid = validate_encoder_input(request, model_); !valid) return valid;
  return check_served(request, capabilities_);
}

Result<RequestId> EngineImpl::submit(EngineRequest request, OutputSink& sink) {
  const std::optional<KvTransferParams> transfer = request.kv_transfer;
  auto submitted = submit_checked(std::move(request), sink);
  if (!submitted) decline(transfer);
  return submitted;
}

Result<RequestId> EngineImpl::submit_checked(EngineRequest request, OutputSink& sink) {
  if (auto valid = check(request); !valid) return std::unexpected(valid.error());
  if (!request.adapter.empty() || request.adapter_lease != nullptr)
    if (auto served = check_adapters(); !served) return std::unexpected(std::move(served.error()));
  // Asked twice: here to spare the work below, and by submit() itself, where it counts.
  if (Result<void> room = inbox_.check_room(request.n); !room) return std::unexpected(std::move(room.error()));
  Submission submission{.id = {}, .request = std::move(request), .block_names = {}, .sink = &sink, .arrival_s = clock_->now_s()};
  submission.adapter = std::move(submission.request.adapter_lease);
  if (submission.adapter == nullptr && !submission.request.adapter.empty()) {
    auto lease = adapters_->lease(submission.request.adapter);
    if (!lease) return std::unexpected(std::move(lease.error()));
    submission.adapter = *std::move(lease);
  }
  // Before the inbox is locked: this is the costly part of a long prompt.
  submission.block_names = name_blocks(submission.request, submission.adapter.get(), core_config_);
  return inbox_.submit(std::move(submission));
}

Result<RequestId> EngineImpl::fork(RequestId parent, const EngineFork& fork, OutputSink& sink) {
  if (auto valid = validate_count(fork.n); !valid) return std::unexpected(valid.error());
  if (model_.has_encoder())
    return fail(ErrorCode::unsupported, "parent", "what its encoder has made cannot be shared", "send a request with the same input");
  return inbox_.fork({.parent = parent, .options = fork, .sink = &sink, .arrival_s = clock_->now_s()});
}

Result<void> EngineImpl::append(RequestId session, std::vector<TokenId> tokens) {
  if (auto valid = validate_tokens(tokens, model_.vocab_size); !valid) return valid;
  return inbox_.append({.id = session, .tokens = std::move(tokens)}, options_.scheduler.max_model_len);
}

void EngineImpl::finish(RequestId id, FinishReason reason) {
  inbox_.finish(id, reason);
}

void EngineImpl::reset_prefix_cache(const CacheResetOptions& options, ControlAnswer answer) {
  inbox_.control({options, std::move(answer)});
}

void EngineImpl::pause(const PauseOptions& options, ControlAnswer answer) {
  inbox_.control({options, std::move(answer)});
}

void EngineImpl::resume(ControlAnswer answer) {
  inbox_.control({ResumeOptions{}, std::move(answer)});
}

void EngineImpl::explain(std::string name, ExplainAnswer answer) {
  inbox_.ask(Question{std::move(name), std::move(answer)});
}

void EngineImpl::cache_curve(std::optional<std::string> tenant, CurveAnswer answer) {
  inbox_.ask(CurveQuestion{std::move(tenant), std::move(answer)});
}

void EngineImpl::watch(std::shared_ptr<WatchFrame> frame, WatchAnswer answer) {
  inbox_.ask(Look{std::move(frame), std::move(answer)});
}

void EngineImpl::probe(EngineRequest request, ProbeAnswer answer) {
  if (auto valid = check(request); !valid) return answer(std::unexpected(std::move(valid.error())));
  Submission submission{.id = {}, .request = std::move(request), .block_names = {}};
  if (!submission.request.adapter.empty()) {
    if (auto served = check_adapters(); !served) return answer(std::unexpected(std::move(served.error())));
    auto named = adapters_->identify(submission.request.adapter);
    if (!named) return answer(std::unexpected(std::move(named.error())));
    submission.adapter = *std::move(named);
  }
  submission.block_names = name_blocks(submission.request, submission.adapter.get(), core_config_);
  inbox_.ask(Probe{std::move(submission), std::move(answer)});
}

// Not by the engine's thread: the journal has one of its own.
void EngineImpl::save_journal(JournalSaveAnswer answer) {
  if (journal_ != nullptr) return journal_->save(std::move(answer));
  answer(fail(ErrorCode::unsupported, "journal_memory", "is 0: the last minutes are not kept", "start with more (--journal-memory 32MiB)"));
}

Result<void> EngineImpl::check_adapters() const {
  if (adapters_ != nullptr) return {};
  return fail(ErrorCode::invalid_argument, "adapter", "is given, and this engine serves none", "serve with --enable-lora");
}

Result<AdapterInfo> EngineImpl::load_adapter(const std::string& name, const std::string& path, bool replace) {
  if (auto served = check_adapters(); !served) return std::unexpected(std::move(served.error()));
  return adapters_->load(name, path, replace);
}

Result<void> EngineImpl::unload_adapter(const std::string& name) {
  if (auto served = check_adapters(); !served) return served;
  return adapters_->unload(name);
}

std::vector<AdapterInfo> EngineImpl::adapters() const {
  return adapters_ == nullptr ? std::vector<AdapterInfo>() : adapters_->list();
}

Result<std::shared_ptr<const AdapterLease>> EngineImpl::lease_adapter(const std::string& name, bool may_read) {
  if (auto served = check_adapters(); !served) return std::unexpected(std::move(served.error()));
  return may_read ? adapters_->lease(name) : adapters_->lease_resident(name);
}

EngineStats EngineImpl::stats() const {
  EngineStats stats;
  {
    const std::lock_guard lock(stats_mutex_);
    stats = stats_;
  }
  stats.is_stopping = is_stopping_;
  // Not by the engine thread, which never waits for those who load.
  if (adapters_ == nullptr) return stats;
  stats.adapters = adapters_->stats();
  stats.adapters->max_loras = options_.adapters.max_loras;
  return stats;
}

std::uint32_t EngineImpl::stop(double timeout_s) {
  // Several may call it, the destructor among them: the later ones wait and get the same answer.
  const std::lock_guard lock(stop_mutex_);
  if (!stopped_) {
    is_stopping_ = true;
    inbox_.close();
    if (!inbox_.wait_until_done(timeout_s)) inbox_.abort_rest();
    thread_.join();
    loop_.check_all_free();
    log_.stopped(loop_.stats(), num_aborted_);
    stopped_ = true;
  }
  return num_aborted_;
}

void EngineImpl::run() {
  Intake intake;
  loop_.notify_with([this] {
    has_news_ = true;
    inbox_.wake();
  });
  for (const auto& tier : tiers_) tier->notify_with([this] { inbox_.wake(); });
  while (true) {
    loop_.assist();
    bool tends = false;
    for (const auto& tier : tiers_) tends |= tier->tend(loop_.compute_tokens_per_s());
    // The one place where the engine thread sleeps for want of work.
    inbox_.take(intake, tends ? 0.0 : loop_.wait_s());
    // After the wait, so that news that ended it is seen in this round.
    if (has_news_.exchange(false)) loop_.look_for_news();
    handle(intake);
    // Nobody can resume a closed engine, so what a pause holds back ends, too.
    if (intake.aborting || (intake.closed && controls_.is_paused() && !loop_.can_step())) num_aborted_ += loop_.abort_all();
    if (intake.closed && !loop_.has_work()) loop_.end_pins();
    if (swap_ != nullptr) loop_.set_swap_costs(swap_->costs(loop_.compute_tokens_per_s()));
    if (loop_.can_step()) loop_.step();
    controls_.settle();
    if (kv_events_ != nullptr) tell_of_tiers();
    publish(intake);
    const bool awaits_transfers = loop_.awaits_transfers() && !intake.aborting;
    // Before it sleeps for their end.
    if (intake.closed && !loop_.has_work() && awaits_transfers)
      for (const auto& tier : tiers_) tier->hurry();
    if (intake.closed && !intake.has_more && !loop_.has_work() && !awaits_transfers && !loop_.has_pins()) break;
  }
  // The tiers outlive the inbox: nobody is to wake it any more.
  for (const auto& tier : tiers_) tier->notify_with({});
  inbox_.set_done();
}

void EngineImpl::handle(Intake& intake) {
  for (const Cancelled& cancelled : intake.cancelled) {
    if (intake.aborting) num_aborted_ += cancelled.submission.request.n;
    decline(cancelled.submission.request.kv_transfer);
    loop_.cancel(cancelled.submission, cancelled.reason);
  }
  for (Command& command : intake.commands)
    if (const Ending* ending = std::get_if<Ending>(&command))
      loop_.finish(ending->id, ending->reason);
    else if (const Fork* fork = std::get_if<Fork>(&command))
      loop_.fork(*fork);
    else if (SessionTokens* input = std::get_if<SessionTokens>(&command))
      loop_.append(std::move(*input));
    else if (Question* question = std::get_if<Question>(&command))
      question->answer(loop_.explain(question->name));
    else if (Look* look = std::get_if<Look>(&command))
      answer_look(*look);
    else if (const Probe* probe = std::get_if<Probe>(&command))
      answer_probe(*probe);
    else if (CurveQuestion* asked = std::get_if<CurveQuestion>(&command))
      asked->answer(loop_.cache_curve(asked->tenant));
    else
      controls_.take(std::move(std::get<Control>(command)));
  for (Submission& submission : intake.submissions) {
    if (const auto& transfer = submission.request.kv_transfer)
      for (const auto& tier : tiers_) tier->expect(submission.id, *transfer);
    loop_.add(std::move(submission));
  }
}

// After the step's own events: what has moved down was told of where it came from before.
void EngineImpl::tell_of_tiers() {
  const TierNames names{.hash_bytes = static_cast<std::uint32_t>(hash_size(core_config_.prefix_cache.hash)),
                        .block_size = core_config_.block_size};
  tier_events_.clear();
  for (const auto& tier : tiers_) tier->take_events(names, tier_events_);
  kv_events_->publish(tier_events_);
}

void EngineImpl::answer_look(Look& look) {
  loop_.watch(*look.frame);
  look.answer(std::move(look.frame));
}

void EngineImpl::answer_probe(const Probe& probe) {
  auto found = loop_.probe(probe.submission);
  if (found && found->compute_s.has_value()) found->load_s = load_s(found->cache);
  probe.answer(std::move(found));
}

std::optional<double> EngineImpl::load_s(const CacheProbe& probe) const {
  double seconds = 0.0;
  for (const TierMatch& match : probe.external) {
    if (match.tier >= tiers_.size()) return std::nullopt;
    const KvTierStats tier = tiers_[match.tier]->stats();
    if (tier.load_bytes_per_s <= 0.0) return std::nullopt;
    // Of what it has loaded so far: a place may be several blocks, and a token's may be in several groups.
    const double bytes_per_token = tier.tokens_loaded > 0 ? static_cast<double>(tier.bytes_loaded) / static_cast<double>(tier.tokens_loaded)
                                                          : static_cast<double>(tier.place_bytes) / core_config_.block_size;
    seconds += match.num_tokens * bytes_per_token / tier.load_bytes_per_s;
  }
  return seconds;
}

EngineStats EngineImpl::stats_now() {
  EngineStats stats = loop_.stats();
  for (const auto& tier : tiers_) stats.kv_tiers.push_back(tier->stats());
  if (swap_ != nullptr) stats.kv_swap = swap_->stats(loop_.counters());
  return stats;
}

// Statistics first: whoever sees an output finds it counted.
void EngineImpl::publish(const Intake& intake) {
  inbox_.admitted(loop_.admitted());
  {
    const std::lock_guard lock(stats_mutex_);
    stats_ = stats_now();
    stats_.num_waiting += intake.num_left;
    stats_.is_paused = controls_.is_paused();
  }
  log_.report(stats_);
  loop_.deliver();
  controls_.answer();
  // Last: from then on a client is told that its request is unknown, and its output has gone out.
  inbox_.ended(loop_.ended());
  loop_.clear_news();
}

}  // namespace quire
