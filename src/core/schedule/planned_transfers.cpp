// A connector's transfers: they begin with a plan, and their ends become what vLLM's workers report of a request.
//
//   waiting_for_remote_kv -> same, finished_receiving   its last load is over (transfers.cpp)
//   finished, known -> unknown                          its last transfer is over (transfers.cpp)
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

std::unexpected<Error> wrong_completion(std::string message) {
  return fail(ErrorCode::invalid_argument, "completions", std::move(message), "tell of the end of each open transfer once");
}

// Opens transfers on the connector's behalf.
class TransferOpener final : public TransferList {
 public:
  TransferOpener(OpenTransfers& open, RequestTable& table, PlanArena& arena) : open_(&open), table_(&table), arena_(&arena) {}
  std::optional<TransferId> add(const Transfer& transfer) override {
    Request* request = table_->find(transfer.request);
    QUIRE_CHECK(request != nullptr, "a transfer is for a request that is known");
    const std::optional<Transfer> opened = open_->open(transfer);
    if (!opened) return std::nullopt;
    ++(opened->direction == TransferDirection::load ? request->num_open_loads : request->num_open_stores);
    arena_->add_transfer(*opened);
    return opened->id;
  }

 private:
  OpenTransfers* open_;
  RequestTable* table_;
  PlanArena* arena_;
};

}  // namespace

void Core::State::plan_transfers(PlanArena& arena) {
  const TransferId first_new = open_transfers.next_id();
  TransferOpener opener(open_transfers, table, arena);
  seams.connector->plan_transfers(arena.plan(), opener);
  for (const RequestId id : finished)
    if (Request* request = table.find(id); request != nullptr) request->awaits_transfer = false;
  if (open_transfers.num_open() > 0) find_fences(arena, first_new);
  arena.seal_transfers();
}

// Blocks that the plan's pass, or a load that begins with it, writes to.
void Core::State::find_fences(PlanArena& arena, TransferId first_new) {
  for (const BlockTableDelta& delta : arena.plan().table_deltas) {
    std::span<const BlockId> written = delta.blocks;
    if (delta.update == TableUpdate::replace_all) {
      const std::size_t num_computed = arena.num_computed_tokens(*table.find(delta.id)) / kv.block_size(delta.group);
      written = written.subspan(std::min(num_computed, written.size()));
    }
    for (const BlockId block : written) open_transfers.add_fences(block, first_new, arena.fences());
  }
  for (const Transfer& transfer : arena.transfers())
    if (transfer.direction == TransferDirection::load)
      for (const BlockId block : transfer.blocks) open_transfers.add_fences(block, first_new, arena.fences());
}

Result<void> Core::State::check_completions(const StepResult& result) const {
  const std::span<const TransferCompletion> all = result.completions;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const OpenTransfers::Entry* open = open_transfers.find(all[i].transfer);
    if (open == nullptr) return wrong_completion(fmt::format("transfer {} is not open", all[i].transfer.value));
    if (std::ranges::find(all.first(i), all[i].transfer, &TransferCompletion::transfer) != all.begin() + static_cast<std::ptrdiff_t>(i))
      return wrong_completion(fmt::format("transfer {} ends twice", all[i].transfer.value));
    const bool load_failed = all[i].outcome == TransferOutcome::failed && open->direction == TransferDirection::load;
    if (load_failed && kv.num_groups() != 1) {
      return fail(ErrorCode::unsupported, "completions", fmt::format("a load failed, and there are {} cache groups", kv.num_groups()),
                  "failed loads can be mended with one cache group only");
    }
    for (const BlockId block : all[i].bad_blocks)
      if (std::ranges::find(open->blocks, block) == open->blocks.end())
        return wrong_completion(fmt::format("block {} is not of transfer {}", block.value, open->id.value));
  }
  return {};
}

// The result as a host that begins none would give it.
StepResult Core::State::take_completions(const StepResult& result) {
  if (result.completions.empty()) return result;
  out.sent.assign(result.finished_sending.begin(), result.finished_sending.end());
  out.received.assign(result.finished_receiving.begin(), result.finished_receiving.end());
  out.not_loaded.assign(result.invalid_blocks.begin(), result.invalid_blocks.end());
  for (const TransferCompletion& completion : result.completions) {
    if (seams.connector != nullptr) seams.connector->completed(completion);
    end_transfer(completion);
  }
  StepResult told = result;
  told.has_connector_output = true;
  told.finished_sending = out.sent;
  told.finished_receiving = out.received;
  told.invalid_blocks = out.not_loaded;
  return told;
}

void Core::State::end_transfer(const TransferCompletion& completion) {
  const OpenTransfers::Entry& open = *open_transfers.find(completion.transfer);
  const bool is_load = open.direction == TransferDirection::load;
  if (is_load && completion.outcome == TransferOutcome::failed) {
    const std::span<const BlockId> bad = completion.bad_blocks.empty() ? std::span<const BlockId>(open.blocks) : completion.bad_blocks;
    out.not_loaded.insert(out.not_loaded.end(), bad.begin(), bad.end());
  }
  if (Request* request = table.find(open.request); request != nullptr) {
    std::uint32_t& num_open = is_load ? request->num_open_loads : request->num_open_stores;
    QUIRE_CHECK(num_open > 0, "the transfers of a request are counted");
    --num_open;
    if (is_load && num_open == 0 && is_loading(*request)) out.received.push_back(request->id);
    const bool has_none = request->num_open_loads + request->num_open_stores == 0 && !request->awaits_transfer;
    if (has_none && HoldLedger::holds(*request, Holder::transfer)) out.sent.push_back(request->id);
  }
  open_transfers.close(completion.transfer);
}

}  // namespace quire
