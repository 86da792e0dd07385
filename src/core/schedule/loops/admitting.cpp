#include "core/schedule/loops/admitting.h"

#include "base/check.h"

namespace quire {

void RequestAdmitter::admit(Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens, bool is_padded,
                            PlanArena& arena) {
  QUIRE_CHECK(request.status == RequestStatus::waiting || request.status == RequestStatus::preempted,
              "only a waiting or preempted request is admitted");
  QUIRE_CHECK(request.queue == QueueName::none && request.slot == kNoSlot, "an admitted request is in no queue and has no slot");
  QUIRE_CHECK(queues_.running.size() < context_.config.scheduler.max_num_seqs, "the batch has a free row");
  QUIRE_CHECK(is_padded || num_computed_tokens + num_new_tokens <= request.num_tokens(), "only known tokens are scheduled");
  const ScheduledKind kind = request.status == RequestStatus::waiting ? ScheduledKind::fresh : ScheduledKind::resumed;
  queues_.running.push_back(&request);
  queues_.end_deferral(request);
  requests_.record(request, RequestEventKind::scheduled, context_.now);
  budget_.note_lora(request);
  request.status = RequestStatus::running;
  request.num_computed_tokens = num_computed_tokens;
  request.is_prefilling |= num_computed_tokens + num_new_tokens < request.num_tokens();
  // Set at the first admission only: a later admission may hit blocks that the request itself has computed.
  if (request.num_cached_tokens < 0) request.num_cached_tokens = num_computed_tokens;
  slots_.take(request);
  if (context_.events.wanted()) {
    context_.events.on_event({.what = EventKind::admitted,
                              .owner = request.id,
                              .amount = static_cast<std::uint32_t>(num_computed_tokens),
                              .total = static_cast<std::uint32_t>(request.num_tokens())});
  }
  forks_.stop_sharing(request);
  arena.admit(request, !request.was_admitted_before);
  request.was_admitted_before = true;
  request.load.early = false;
  budget_.commit(request, num_new_tokens, kind, arena);
  if (is_padded)
    // The request may have draft tokens from before its preemption. Its next step uses them.
    arena.set_placeholders(static_cast<std::uint32_t>(num_new_tokens) - 1);
  forks_.plan_copies(request, kind, arena);
  for (std::uint32_t group = 0; group < context_.num_groups; ++group)
    arena.table_delta(request, group, TableUpdate::replace_all, request.blocks.blocks(group));
  if (context_.config.parallel.pipeline_parallel && kind == ScheduledKind::resumed) budget_.send_new_tokens(request, arena);
}

}  // namespace quire
