// Implements the two sides of the engine. Clients' threads call submit(), fork(), append(), finish(), stats() and the operator's commands.
// These check, queue and return; they never use the step loop. The engine thread executes run() from the constructor to the end of stop(),
// and only that thread uses the core and the worker. No client call may stop the program or wait for a step.
#include "engine/engine_impl.h"

#include <algorithm>
#include <optional>

#include "core/kv/hash/hash_function.h"
#include "engine/check_served.h"
#include "engine/kv_plan.h"
#include "engine/requests/block_keys.h"
#include "engine/requests/validate_images.h"
#include "engine/requests/validate_request.h"
#include "quire/journal.h"

namespace quire {

EngineImpl::EngineImpl(ResolvedEngine resolved, std::unique_ptr<Core> core, StepLoop::Options loop, EngineParts parts)
    : resolved_(std::move(resolved)),
      capabilities_(parts.worker->capabilities()),
      tiers_(std::move(parts.tiers)),
      swap_(std::move(parts.swap)),
      adapters_(std::move(parts.adapters.registry)),
      clock_(loop.seams.clock),
      kv_events_(loop.kv_events),
      journal_(loop.journal),
      log_(loop.seams.logger),
      inbox_({.max_num_waiting = resolved_.options.scheduler.max_num_waiting,
              .max_tenant_waiting = resolved_.options.max_tenant_waiting,
              .max_num_seqs = resolved_.options.scheduler.max_num_seqs,
              .max_num_batched_tokens = resolved_.options.scheduler.max_num_batched_tokens,
              .max_num_queued_reqs = resolved_.options.max_num_queued_reqs,
              .max_num_queued_tokens = resolved_.options.max_num_queued_tokens,
              .max_ttft_s = 1e-3 * resolved_.options.max_ttft_ms,
              .shares_steps = resolved_.options.step_time_target_ms > 0}),
      loop_(std::move(core), std::move(parts.worker), std::move(loop)),
      stats_(stats_now()) {
  log_.started(resolved_.model, resolved_.options);
  log_.opened(stats_.kv_tiers, resolved_.options.scheduler.max_model_len);
  thread_ = std::thread([this] { run(); });
}

EngineImpl::~EngineImpl() {
  stop(0.0);
}

// Releases the blocks that another server keeps for a request which this server does not accept.
void EngineImpl::decline(const std::optional<KvTransferParams>& params) const {
  if (!params) return;
  for (const auto& tier : tiers_) tier->decline(*params);
}

Result<void> EngineImpl::check(EngineRequest& request) const {
  KvRole role = KvRole::none;
  for (const auto& tier : tiers_) role = tier->role() != KvRole::none ? tier->role() : role;
  if (auto valid = validate_transfer(request, role); !valid) return valid;
  if (request.kv_transfer)
    for (const auto& tier : tiers_)
      if (auto valid = tier->check(*request.kv_transfer); !valid) return valid;
  if (auto valid = validate_request(request, resolved_.options, resolved_.model.vocab_size); !valid) return valid;
  if (auto valid = validate_output(request, resolved_.model); !valid) return valid;
  if (auto valid = validate_rows(request, resolved_.model.hidden_size); !valid) return valid;
  if (auto valid = validate_images(request, resolved_.model.pictures); !valid) return valid;
  if (auto valid = validate_encoder_input(request, resolved_.model); !valid) return valid;
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
  // Checks for room before the work below, to avoid the work. Inbox::submit() checks again and decides.
  if (Result<void> room = inbox_.check_room(request.n, request.tags.tenant); !room) return std::unexpected(std::move(room.error()));
  Submission submission{.id = {}, .request = std::move(request), .block_keys = {}, .sink = &sink, .arrival_s = clock_->now_s()};
  submission.adapter = std::move(submission.request.adapter_lease);
  if (submission.adapter == nullptr && !submission.request.adapter.empty()) {
    auto lease = adapters_->lease(submission.request.adapter);
    if (!lease) return std::unexpected(std::move(lease.error()));
    submission.adapter = *std::move(lease);
  }
  // Hashes the blocks before the inbox is locked, because hashing a long prompt takes long.
  submission.block_keys = name_blocks(submission.request, submission.adapter.get(), resolved_.core);
  return inbox_.submit(std::move(submission));
}

Result<RequestId> EngineImpl::fork(RequestId parent, const EngineFork& fork, OutputSink& sink) {
  if (auto valid = validate_count(fork.n); !valid) return std::unexpected(valid.error());
  if (resolved_.model.has_encoder())
    return fail(ErrorCode::unsupported, "parent",
                "a request with an encoder input cannot be forked, because its encoder output cannot be shared",
                "send a request with the same input");
  return inbox_.fork({.parent = parent, .options = fork, .sink = &sink, .arrival_s = clock_->now_s()});
}

Result<void> EngineImpl::append(RequestId session, std::vector<TokenId> tokens) {
  if (auto valid = validate_tokens(tokens, resolved_.model.vocab_size); !valid) return valid;
  return inbox_.append({.id = session, .tokens = std::move(tokens)}, resolved_.options.scheduler.max_model_len);
}

void EngineImpl::finish(RequestId id, FinishReason reason) {
  inbox_.finish(id, reason);
}

void EngineImpl::reset_prefix_cache(const CacheResetOptions& options, ControlCallback answer) {
  inbox_.control({options, std::move(answer)});
}

void EngineImpl::reset_encoder_cache(ControlCallback answer) {
  inbox_.control({EncoderResetOptions{}, std::move(answer)});
}

void EngineImpl::pause(const PauseOptions& options, ControlCallback answer) {
  inbox_.control({options, std::move(answer)});
}

void EngineImpl::resume(ControlCallback answer) {
  inbox_.control({ResumeOptions{}, std::move(answer)});
}

void EngineImpl::explain(std::string name, ExplainCallback answer) {
  inbox_.ask(ExplainQuery{std::move(name), std::move(answer)});
}

void EngineImpl::cache_curve(std::optional<std::string> tenant, CurveCallback answer) {
  inbox_.ask(CurveQuery{std::move(tenant), std::move(answer)});
}

void EngineImpl::watch(std::shared_ptr<WatchFrame> frame, WatchCallback answer) {
  inbox_.ask(WatchQuery{std::move(frame), std::move(answer)});
}

void EngineImpl::probe(EngineRequest request, ProbeCallback answer) {
  if (auto valid = check(request); !valid) return answer(std::unexpected(std::move(valid.error())));
  Submission submission{.id = {}, .request = std::move(request), .block_keys = {}};
  if (!submission.request.adapter.empty()) {
    if (auto served = check_adapters(); !served) return answer(std::unexpected(std::move(served.error())));
    auto named = adapters_->identify(submission.request.adapter);
    if (!named) return answer(std::unexpected(std::move(named.error())));
    submission.adapter = *std::move(named);
  }
  submission.block_keys = name_blocks(submission.request, submission.adapter.get(), resolved_.core);
  inbox_.ask(ProbeQuery{std::move(submission), std::move(answer)});
}

// Passes the call to the journal, whose thread writes the file. The engine thread is not involved.
void EngineImpl::save_journal(JournalSaveCallback answer) {
  if (journal_ != nullptr) return journal_->save(std::move(answer));
  answer(fail(ErrorCode::unsupported, "journal_memory", "is 0, so no journal is kept in memory",
              "start the server with --journal-memory 32MiB"));
}

Result<void> EngineImpl::check_adapters() const {
  if (adapters_ != nullptr) return {};
  return fail(ErrorCode::invalid_argument, "adapter", "is set, but this engine does not serve adapters",
              "start the server with --enable-lora");
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
  // The following values are added here, because the engine thread must never wait for threads that load adapters.
  if (adapters_ == nullptr) return stats;
  stats.adapters = adapters_->stats();
  stats.adapters->max_loras = resolved_.options.adapters.max_loras;
  return stats;
}

std::uint32_t EngineImpl::stop(double timeout_s) {
  // Several threads may call stop(), also through the destructor. Later calls wait and return the same result.
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
  InboxBatch intake;
  loop_.set_notify([this] {
    has_updates_ = true;
    inbox_.wake();
  });
  for (const auto& tier : tiers_) tier->set_notify([this] { inbox_.wake(); });
  while (true) {
    loop_.assist();
    bool tends = false;
    for (const auto& tier : tiers_) tends |= tier->maintain(loop_.compute_tokens_per_s());
    // This is the only call in which the engine thread sleeps when it has no work.
    inbox_.take(intake, tends ? 0.0 : loop_.wait_s(), loop_.num_free_rows());
    // Checked after the wait, so that the update that ended the wait is handled in this round.
    if (has_updates_.exchange(false)) loop_.note_change();
    handle(intake);
    // A closed engine cannot be resumed, so requests that a pause holds back are also ended.
    if (intake.aborting || (intake.closed && controls_.is_paused() && !loop_.can_step())) num_aborted_ += loop_.abort_all();
    if (intake.closed && !loop_.has_work()) loop_.end_pins();
    if (swap_ != nullptr) loop_.set_swap_costs(swap_->costs(loop_.compute_tokens_per_s()));
    if (loop_.can_step()) loop_.step();
    controls_.settle();
    if (kv_events_ != nullptr) publish_tier_events();
    publish(intake);
    const bool awaits_transfers = loop_.awaits_transfers() && !intake.aborting;
    // Must come before the thread sleeps until the transfers end, because an open lease is a transfer.
    if (intake.closed && !loop_.has_work() && awaits_transfers)
      for (const auto& tier : tiers_) tier->expire_leases();
    if (intake.closed && !intake.has_more && !loop_.has_work() && !awaits_transfers && !loop_.has_pins()) break;
  }
  // The tiers outlive the inbox, so their callbacks, which wake the inbox, are removed.
  for (const auto& tier : tiers_) tier->set_notify({});
  inbox_.set_done();
}

void EngineImpl::handle(InboxBatch& intake) {
  for (const Cancelled& cancelled : intake.cancelled) {
    if (intake.aborting) num_aborted_ += cancelled.submission.request.n;
    decline(cancelled.submission.request.kv_transfer);
    loop_.cancel(cancelled.submission, cancelled.reason);
  }
  for (Command& command : intake.commands)
    if (const FinishCommand* ending = std::get_if<FinishCommand>(&command))
      loop_.finish(ending->id, ending->reason);
    else if (const Fork* fork = std::get_if<Fork>(&command))
      loop_.fork(*fork);
    else if (SessionTokens* input = std::get_if<SessionTokens>(&command))
      loop_.append(std::move(*input));
    else if (ExplainQuery* question = std::get_if<ExplainQuery>(&command))
      question->answer(loop_.explain(question->name));
    else if (WatchQuery* look = std::get_if<WatchQuery>(&command))
      answer_watch(*look);
    else if (const ProbeQuery* probe = std::get_if<ProbeQuery>(&command))
      answer_probe(*probe);
    else if (CurveQuery* asked = std::get_if<CurveQuery>(&command))
      asked->answer(loop_.cache_curve(asked->tenant));
    else
      controls_.take(std::move(std::get<Control>(command)));
  for (Submission& submission : intake.submissions) {
    if (const auto& transfer = submission.request.kv_transfer)
      for (const auto& tier : tiers_) tier->expect(submission.id, *transfer);
    loop_.add(std::move(submission));
  }
}

// Publishes the tiers' events. Called after the step's events are published, so that the events of a block in the KV cache precede its
// events in a tier.
void EngineImpl::publish_tier_events() {
  const TierBlockFormat format{.hash_bytes = static_cast<std::uint32_t>(hash_size(resolved_.core.prefix_cache.hash)),
                               .block_size = resolved_.core.block_size};
  tier_events_.clear();
  for (const auto& tier : tiers_) tier->take_events(format, tier_events_);
  kv_events_->publish(tier_events_);
}

void EngineImpl::answer_watch(WatchQuery& look) {
  loop_.watch(*look.frame);
  look.answer(std::move(look.frame));
}

void EngineImpl::answer_probe(const ProbeQuery& probe) {
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
    // Bytes per token, measured over the loads so far if there were any. It cannot be computed, because a slot may hold several blocks, and
    // a token may have blocks in several groups.
    const double bytes_per_token = tier.tokens_loaded > 0 ? static_cast<double>(tier.bytes_loaded) / static_cast<double>(tier.tokens_loaded)
                                                          : static_cast<double>(tier.place_bytes) / resolved_.core.block_size;
    seconds += match.num_tokens * bytes_per_token / tier.load_bytes_per_s;
  }
  return seconds;
}

EngineStats EngineImpl::stats_now() {
  EngineStats stats = loop_.stats();
  for (const auto& tier : tiers_) {
    KvTierStats& of_tier = stats.kv_tiers.emplace_back(tier->stats());
    if (tier->holds_blocks()) of_tier.capacity_tokens = num_tokens_in(resolved_.core.kv, of_tier.num_places);
  }
  if (swap_ != nullptr) stats.kv_swap = swap_->stats(loop_.counters());
  return stats;
}

// Publishes the results of this round. The statistics are updated first, so that an output is already counted when a client receives it.
void EngineImpl::publish(const InboxBatch& intake) {
  inbox_.admitted(loop_.admitted());
  inbox_.prefilled(loop_.prefilled(), loop_.compute_tokens_per_s());
  {
    const std::lock_guard lock(stats_mutex_);
    stats_ = stats_now();
    stats_.num_waiting += intake.num_left;
    stats_.num_queued_tokens = inbox_.num_queued_tokens();
    stats_.is_paused = controls_.is_paused();
  }
  log_.report(stats_);
  loop_.deliver();
  controls_.answer();
  // Must come last: from then on clients get the error that the request is not open, so its last output must have been delivered.
  inbox_.ended(loop_.ended());
  loop_.clear_changes();
}

}  // namespace quire
