// Opens the transfers that a connector plans, finds the fences, and converts ended transfers into the reports of vLLM's workers. Called by
// step.cpp on the core's thread. A request's blocks must never be reported as received while one of its loads is open, was refused or was
// lost.
#include "core/schedule/moves/transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

namespace {

std::unexpected<Error> wrong_completion(std::string message, const char* remedy = "report the end of each open transfer once") {
  return fail(ErrorCode::invalid_argument, "completions", std::move(message), remedy);
}

std::unexpected<Error> wrong_list(const char* field, std::string message,
                                  const char* remedy = "pass the result of the oldest plan that is not applied yet") {
  return fail(ErrorCode::invalid_argument, field, std::move(message), remedy);
}

// Opens transfers for the connector.
class TransferOpener final : public TransferList {
 public:
  // With `holds_stores`, refuses stores, because the content of the blocks may be invalid.
  TransferOpener(OpenTransfers& open, RequestTable& table, PlanArena& arena, std::vector<RequestId>& refused, bool holds_stores)
      : open_(&open), table_(&table), arena_(&arena), refused_(&refused), holds_stores_(holds_stores) {}
  std::optional<TransferId> add(const Transfer& transfer) override {
    Request* request = table_->find(transfer.request);
    QUIRE_CHECK(request != nullptr, "a transfer belongs to a known request");
    const bool is_held_back = holds_stores_ && transfer.direction == TransferDirection::store;
    const std::optional<Transfer> opened = is_held_back ? std::nullopt : open_->open(transfer);
    request->transfers.had_any = true;
    if (!opened) {
      TransferRefusal& refused = request->transfers.refused;
      if (refused != TransferRefusal::load)
        refused = transfer.direction == TransferDirection::load ? TransferRefusal::load : TransferRefusal::store;
      refused_->push_back(request->id);
      return std::nullopt;
    }
    ++(opened->direction == TransferDirection::load ? request->transfers.num_open_loads : request->transfers.num_open_stores);
    arena_->add_transfer(*opened);
    return opened->id;
  }

 private:
  OpenTransfers* open_;
  RequestTable* table_;
  PlanArena* arena_;
  std::vector<RequestId>* refused_;
  bool holds_stores_;
};

}  // namespace

void Transfers::plan(PlanArena& arena) {
  // Transfers with this id or a greater one begin with this plan.
  const TransferId first_new = open_.next_id();
  swap_.plan(arena);
  // The connector may plan refused transfers again in this plan. The flags are reset before that, so a request that gets no new transfer
  // waits for none.
  for (const RequestId id : refused_)
    if (Request* request = table_.find(id); request != nullptr) request->transfers.refused = TransferRefusal::none;
  asked_again_.insert(asked_again_.end(), refused_.begin(), refused_.end());
  refused_.clear();
  // A step in flight needs a load that has not ended. Until then, blocks that the step computes must not be stored.
  const bool holds_stores = context_.rules.unloaded_begin_anew && open_.num_needed() > 0;
  TransferOpener opener(open_, table_, arena, refused_, holds_stores);
  if (context_.seams.connector != nullptr) context_.seams.connector->plan_transfers(arena.plan(), opener);
  if (open_.num_open() > 0) find_fences(arena, first_new);
  arena.seal_transfers();
}

// Adds a fence for each open transfer that uses a block to which the plan's forward pass, or a load that begins with the plan, writes.
void Transfers::find_fences(PlanArena& arena, TransferId first_new) const {
  for (const BlockTableDelta& delta : arena.plan().table_deltas) {
    std::span<const BlockId> written = delta.blocks;
    if (delta.update == TableUpdate::replace_all) {
      const Request* const request = table_.find(delta.id);
      QUIRE_CHECK(request != nullptr, "a block table update belongs to a known request");
      const std::size_t num_computed = arena.num_computed_tokens(*request) / kv_.block_size(delta.group);
      written = written.subspan(std::min(num_computed, written.size()));
    }
    for (const BlockId block : written) open_.add_fences(block, first_new, arena.fences());
  }
  for (const Transfer& transfer : arena.transfers())
    if (transfer.direction == TransferDirection::load)
      for (const BlockId block : transfer.blocks) open_.add_fences(block, first_new, arena.fences());
}

Result<void> Transfers::check(const StepResult& result) const {
  if (Result<void> checked = check_completions(result); !checked) return checked;
  return result.has_connector_output ? check_lists(result) : Result<void>{};
}

Result<void> Transfers::check_completions(const StepResult& result) const {
  const std::span<const TransferCompletion> all = result.completions;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const OpenTransfers::Entry* open = open_.find(all[i].transfer);
    if (open == nullptr) return wrong_completion(fmt::format("transfer {} is not open", all[i].transfer.value));
    if (std::ranges::find(all.first(i), all[i].transfer, &TransferCompletion::transfer) != all.begin() + static_cast<std::ptrdiff_t>(i))
      return wrong_completion(fmt::format("transfer {} is reported twice", all[i].transfer.value));
    // A failed load for which no request waits can be recovered only if its blocks identify the affected requests, which requires a single
    // cache group (failed_loads.cpp).
    const bool load_failed =
        all[i].outcome == TransferOutcome::failed && open->direction == TransferDirection::load && open->tier != kSwapTier;
    if (load_failed && kv_.num_groups() != 1 && !is_awaited(*open) && !context_.rules.unloaded_begin_anew) {
      return fail(
          ErrorCode::unsupported, "completions",
          fmt::format("the failed load cannot be recovered: no request waits for it, and there are {} cache groups", kv_.num_groups()),
          "use asynchronous loads (load_async) with several cache groups");
    }
    for (const BlockId block : all[i].bad_blocks)
      if (std::ranges::find(open->blocks, block) == open->blocks.end())
        return wrong_completion(fmt::format("block {} is not part of transfer {}", block.value, open->id.value),
                                "list in bad_blocks only blocks of the transfer");
  }
  return {};
}

Result<void> Transfers::check_lists(const StepResult& result) const {
  for (RequestId id : result.finished_receiving) {
    const Request* request = table_.find(id);
    if (request == nullptr || !(HoldLedger::holds(*request, Holder::transfer) || request->status == RequestStatus::waiting_for_remote_kv))
      return wrong_list("finished_receiving", fmt::format("request {} is not waiting for blocks", id.value));
  }
  for (RequestId id : result.finished_sending) {
    const Request* request = table_.find(id);
    if (request == nullptr || !HoldLedger::holds(*request, Holder::transfer))
      return wrong_list("finished_sending", fmt::format("request {} is not a finished request with kept blocks", id.value));
  }
  if (!result.invalid_blocks.empty() && kv_.num_groups() != 1 && !context_.rules.unloaded_begin_anew) {
    return fail(ErrorCode::unsupported, "invalid_blocks",
                fmt::format("failed loads cannot be recovered with {} cache groups", kv_.num_groups()), "use one cache group");
  }
  for (BlockId block : result.invalid_blocks)
    if (block.value >= kv_.pool().num_blocks())
      return wrong_list("invalid_blocks",
                        fmt::format("block {} does not exist: the pool has {} blocks", block.value, kv_.pool().num_blocks()),
                        "list only blocks of the plan's loads");
  return {};
}

// Returns the result that a host without transfers would report.
StepResult Transfers::take_completions(const StepResult& result, std::span<const RequestId> finished) {
  lost_loads_ = false;
  if (result.completions.empty() && finished.empty() && asked_again_.empty()) return result;
  StepResult told = result;
  if (!told.has_connector_output) {  // the lists are not valid, and were not checked
    told.finished_sending = told.finished_receiving = told.failed_receiving = {};
    told.invalid_blocks = {};
  }
  sent_.assign(told.finished_sending.begin(), told.finished_sending.end());
  received_.assign(told.finished_receiving.begin(), told.finished_receiving.end());
  not_loaded_.assign(told.invalid_blocks.begin(), told.invalid_blocks.end());
  for (const RequestId id : finished)
    if (Request* request = table_.find(id); request != nullptr) request->transfers.awaits_end = false;
  for (const TransferCompletion& completion : result.completions) {
    // Swap transfers are not reported to the connector.
    if (open_.find(completion.transfer)->tier == kSwapTier) {
      open_.close(completion.transfer);
      swap_.over(completion);
      continue;
    }
    if (context_.seams.connector != nullptr) context_.seams.connector->completed(completion);
    end(completion);
  }
  for (const RequestId id : finished) find_sent(id);
  for (const RequestId id : asked_again_) find_sent(id);
  asked_again_.clear();
  // The rest of the step handles these ends as if vLLM's worker had reported them.
  told.has_connector_output |= !result.completions.empty() || sent_.size() > told.finished_sending.size();
  told.finished_sending = sent_;
  told.finished_receiving = received_;
  told.invalid_blocks = not_loaded_;
  return told;
}

void Transfers::end(const TransferCompletion& completion) {
  QUIRE_CHECK(open_.find(completion.transfer) != nullptr, "the ended transfer was checked before");
  const OpenTransfers::Entry& open = *open_.find(completion.transfer);
  const bool is_load = open.direction == TransferDirection::load;
  if (is_load && completion.outcome == TransferOutcome::failed) end_failed_load(open, completion.bad_blocks);
  if (Request* request = table_.find(open.request); request != nullptr) {
    std::uint32_t& num_open = is_load ? request->transfers.num_open_loads : request->transfers.num_open_stores;
    QUIRE_CHECK(num_open > 0, "the number of open transfers of a request is correct");
    --num_open;
    if (is_load && num_open == 0 && request->transfers.refused != TransferRefusal::load && is_loading(*request))
      received_.push_back(request->id);
    if (is_sent(*request)) (is_load ? received_ : sent_).push_back(request->id);
  }
  open_.close(completion.transfer);
}

void Transfers::end_failed_load(const OpenTransfers::Entry& load, std::span<const BlockId> bad_blocks) {
  QUIRE_CHECK(load.direction == TransferDirection::load, "only a failed load affects a request");
  if (keeps_all_blocks() || !is_awaited(load)) {
    const std::span<const BlockId> bad = bad_blocks.empty() ? std::span<const BlockId>(load.blocks) : bad_blocks;
    not_loaded_.insert(not_loaded_.end(), bad.begin(), bad.end());
  } else if (Request* request = table_.find(load.request); request != nullptr && is_loading(*request)) {
    request->load.failure = LoadFailure::lost;
    lost_loads_ = true;
  }
}

std::vector<BlockId> Transfers::find_blocks_not_loaded(const StepResult& result) const {
  std::vector<BlockId> blocks;
  if (result.has_connector_output) blocks.assign(result.invalid_blocks.begin(), result.invalid_blocks.end());
  for (const TransferCompletion& completion : result.completions) {
    const OpenTransfers::Entry* open = open_.find(completion.transfer);
    if (open == nullptr || completion.outcome != TransferOutcome::failed || open->direction != TransferDirection::load ||
        open->tier == kSwapTier || is_awaited(*open))
      continue;
    const std::span<const BlockId> bad = completion.bad_blocks.empty() ? std::span<const BlockId>(open->blocks) : completion.bad_blocks;
    blocks.insert(blocks.end(), bad.begin(), bad.end());
  }
  // Removes blocks outside the pool. apply() refuses a result with such blocks.
  std::erase_if(blocks, [this](BlockId block) { return block.value >= kv_.pool().num_blocks(); });
  return blocks;
}

bool Transfers::is_awaited(const OpenTransfers::Entry& load) const {
  const Request* request = table_.find(load.request);
  return load.need == TransferNeed::nothing && (request == nullptr || request->finished() || is_loading(*request));
}

bool Transfers::keeps_all_blocks() const {
  return kv_.num_groups() == 1 && is_full_attention(context_.config.kv.groups[0].spec);
}

bool Transfers::is_sent(const Request& request) {
  return HoldLedger::holds(request, Holder::transfer) && request.transfers.is_idle() && !request.transfers.awaits_end;
}

void Transfers::find_sent(RequestId id) {
  const Request* request = table_.find(id);
  // A request that the result already lists is still released only once.
  if (request != nullptr && request->transfers.had_any && is_sent(*request)) sent_.push_back(id);
}

void Transfers::release_sent(Request& request) {
  if (context_.seams.connector != nullptr) context_.seams.connector->sent(request.id);
  ended_.release(request, Holder::transfer);
}

void Transfers::take(const StepResult& result) {
  if (context_.seams.connector != nullptr) context_.seams.connector->step_output();
  for (RequestId id : result.finished_receiving) {
    Request* request = table_.find(id);
    if (request != nullptr && request->status == RequestStatus::waiting_for_remote_kv) {
      QUIRE_CHECK(request->load.received || queues_.num_loading > 0, "num_loading counts the requests whose blocks are being loaded");
      queues_.num_loading -= std::exchange(request->load.received, true) ? 0 : 1;
      if (request->load.failure == LoadFailure::lost) {
        requests_.note_lost_load(*request);
        requests_.forget_loaded(*request);
      }
    } else if (request != nullptr && HoldLedger::holds(*request, Holder::transfer)) {
      release_sent(*request);
    }
  }
  for (RequestId id : result.finished_sending) {
    Request* request = table_.find(id);
    if (request != nullptr && HoldLedger::holds(*request, Holder::transfer)) release_sent(*request);
  }
}

}  // namespace quire
