// Tests the lines of single events and the words of the trace: docs/trace.md lists them, and programs read them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/trace/trace_text.h"

namespace quire {
namespace {

std::string line_of(const Event& event) {
  TraceStep step;
  step.events = {event};
  std::string steps, requests;
  TraceText({}).append(step, steps, requests);
  EXPECT_EQ(requests, "");
  return steps;
}

TEST(TraceEvents, AnEventHasTheFieldsOfItsKind) {
  constexpr std::string_view kOwner = R"(,"owner":"7")", kFor = R"(,"beneficiary":"8")", kBlocks = R"(,"blocks":5)",
                             kOf = R"(,"of_blocks":6)";
  Event event{.step = StepId{3}, .owner = RequestId{7}, .beneficiary = RequestId{8}, .amount = 5, .total = 6, .block = BlockId{9}};
  event.name.fill(0xab);
  std::string hash;
  for (int i = 0; i < 32; ++i) hash += "ab";
  const std::string block = fmt::format(R"(,"block":9,"name":"{}")", hash);
  struct Case {
    EventKind what;
    const char* word;
    std::string fields;
  };
  const auto join = [](auto... parts) { return (std::string() + ... + std::string(parts)); };
  const Case cases[] = {{EventKind::step_begins, "step_begins", join(kOwner, kBlocks)},
                        {EventKind::prefix_looked_up, "prefix_looked_up", join(kOwner, kBlocks)},
                        {EventKind::admission_tried, "admission_tried", join(kOwner, kBlocks)},
                        {EventKind::admission_blocked, "admission_blocked", join(kOwner, kBlocks)},
                        {EventKind::preempted, "preempted", join(kOwner, kFor, kBlocks)},
                        {EventKind::block_cached, "block_cached", join(kOwner, block)},
                        {EventKind::block_evicted, "block_evicted", join(kFor, block)},
                        {EventKind::pinned, "pinned", join(kOwner, kBlocks)},
                        {EventKind::unpinned, "unpinned", join(kOwner, kBlocks)},
                        {EventKind::forked, "forked", join(kOwner, kFor, kBlocks)},
                        {EventKind::unshared, "unshared", join(kOwner, kBlocks)},
                        {EventKind::gave_way, "gave_way", join(kOwner, kFor, kBlocks)},
                        {EventKind::pressure_high, "pressure_high", join(kBlocks, kOf)},
                        {EventKind::pressure_low, "pressure_low", join(kBlocks, kOf)},
                        {EventKind::swapped_out, "swapped_out", join(kOwner, kBlocks)},
                        {EventKind::swapped_in, "swapped_in", join(kOwner, kBlocks)},
                        {EventKind::swap_declined, "swap_declined", join(kOwner, kBlocks)},
                        {EventKind::swap_lost, "swap_lost", join(kOwner, kBlocks)},
                        {EventKind::queued, "queued", join(kOwner, kBlocks)},
                        {EventKind::passed_over, "passed_over", join(kOwner)},
                        {EventKind::queue_held, "queue_held", join(kOwner)},
                        {EventKind::admitted, "admitted", join(kOwner, kBlocks)},
                        {EventKind::ended, "ended", join(kOwner, kBlocks)},
                        {EventKind::block_forgotten, "block_forgotten", block},
                        {EventKind::cache_reset, "cache_reset", ""}};
  for (const Case& one : cases) {
    event.what = one.what;
    EXPECT_EQ(line_of(event),
              fmt::format("{{\"event\":\"quire\",\"step\":3,\"what\":\"{}\",\"cause\":\"none\"{}}}\n", one.word, one.fields));
  }
  event.parent.fill(0xab);
  event.what = EventKind::block_cached;
  EXPECT_TRUE(line_of(event).ends_with(fmt::format(",\"parent\":\"{}\"}}\n", hash)));
  event.what = EventKind::block_evicted;
  EXPECT_FALSE(line_of(event).contains("parent"));
}

TEST(TraceEvents, EveryCauseHasItsWord) {
  constexpr const char* kWords[] = {"none",       "lack_of_blocks", "expired", "replaced",        "job_over", "ended_by_host", "above_high",
                                    "below_low",  "no_place",       "no_gain", "failed_transfer", "paused",   "no_tokens",     "no_slot",
                                    "preempting", "grammar",        "loading", "connector",       "adapter",  "input"};
  std::size_t cause = 0;
  for (const char* word : kWords)
    EXPECT_TRUE(line_of({.cause = static_cast<EventCause>(cause++)}).contains(fmt::format(R"("cause":"{}")", word))) << word;
}

TEST(TraceEvents, ARecordHasTheWordsOfItsPolicyQueueAndStatus) {
  constexpr const char* kStatuses[] = {"WAITING",
                                       "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
                                       "WAITING_FOR_REMOTE_KVS",
                                       "WAITING_FOR_STREAMING_REQ",
                                       "RUNNING",
                                       "PREEMPTED",
                                       "FINISHED_STOPPED",
                                       "FINISHED_LENGTH_CAPPED",
                                       "FINISHED_ABORTED",
                                       "FINISHED_IGNORED",
                                       "FINISHED_ERROR",
                                       "FINISHED_REPETITION"};
  for (std::size_t status = 0; status < std::size(kStatuses); ++status) {
    TraceStep step;
    step.has_queues = true;
    step.facts = {{.id = RequestId{7}}};
    step.requests = {{.queue = status % 2 == 0 ? QueueKind::running : QueueKind::waiting, .status = static_cast<RequestStatus>(status)}};
    std::string steps, requests;
    TraceText({}).append(step, steps, requests);
    EXPECT_TRUE(requests.contains(fmt::format(R"("status":"{}")", kStatuses[status]))) << requests;
    EXPECT_TRUE(requests.contains(status % 2 == 0 ? R"("queue":"running")" : R"("queue":"waiting")")) << requests;
  }
  for (const auto& [policy, word] : {std::pair(SchedulingPolicy::fcfs, "fcfs"), {SchedulingPolicy::priority, "priority"}}) {
    TraceStep step;
    step.has_queues = true;
    std::string steps, requests;
    TraceText({.policy = policy}).append(step, steps, requests);
    EXPECT_TRUE(steps.contains(fmt::format(R"("policy":"{}")", word))) << steps;
  }
}

// Facts come once, outputs in parts. A later request may have the slot of an ended one.
TEST(TraceEvents, ARecordShowsTheLast32OutputsOfItsRequest) {
  TraceText text({});
  TraceStep step;
  step.has_queues = true;
  const auto tail_after = [&](std::uint32_t num_fresh, TokenId first) {
    step.requests = {{.num_fresh_outputs = 0}, {.place = 1, .num_fresh_outputs = num_fresh}};
    step.outputs.clear();
    for (std::uint32_t i = 0; i < num_fresh; ++i) step.outputs.push_back(first + static_cast<TokenId>(i));
    std::string steps, requests;
    text.append(step, steps, requests);
    step.facts.clear();
    const std::string second = requests.substr(requests.find('\n') + 1);
    const std::size_t at = second.find("\"output_tail\":[") + 15;
    EXPECT_TRUE(requests.substr(0, requests.find('\n')).contains("\"output_tail\":[]")) << requests;
    return second.substr(at, second.find(']', at) - at);
  };
  const auto numbers = [](TokenId first, TokenId last) {
    std::string all;
    for (TokenId token = first; token <= last; ++token) all += (token == first ? "" : ",") + std::to_string(token);
    return all;
  };
  step.facts = {{.place = 0, .id = RequestId{7}}, {.place = 1, .id = RequestId{8}}};
  EXPECT_EQ(tail_after(31, 1), numbers(1, 31));
  EXPECT_EQ(tail_after(1, 32), numbers(1, 32));
  EXPECT_EQ(tail_after(1, 33), numbers(2, 33));
  EXPECT_EQ(tail_after(32, 34), numbers(34, 65));
  step.facts = {{.place = 1, .id = RequestId{9}}};
  EXPECT_EQ(tail_after(2, 90), numbers(90, 91));
}

// Steps between two recorded ones have events and look-ups only.
TEST(TraceEvents, AStepWithoutQueuesHasOnlyEvents) {
  TraceStep step;
  step.step = StepId{4};
  step.events_before = {{.what = EventKind::cache_reset, .step = StepId{3}}};
  step.events = {{.what = EventKind::queue_held, .step = StepId{4}}};
  step.lookups = {{.event = {.owner = RequestId{5}, .amount = 16, .total = 18, .external = 1}, .job = "", .num_prompt_tokens = 17}};
  std::string steps, requests;
  TraceText({.connector = "c"}).append(step, steps, requests);
  EXPECT_EQ(steps,
            "{\"event\":\"quire\",\"step\":3,\"what\":\"cache_reset\",\"cause\":\"none\"}\n"
            "{\"event\":\"prefix_cache_lookup\",\"step\":4,\"ts\":0.000000,\"policy\":\"fcfs\",\"req_id\":\"5\",\"job_id\":null,"
            "\"local_hit_tokens\":16,\"external_hit_tokens\":1,\"total_hit_tokens\":17,\"total_prompt_tokens\":17,\"num_tokens\":18,"
            "\"connector\":\"c\",\"load_kv_async\":false}\n"
            "{\"event\":\"quire\",\"step\":4,\"what\":\"queue_held\",\"cause\":\"none\",\"owner\":\"0\"}\n");
  EXPECT_EQ(requests, "");
}

}  // namespace
}  // namespace quire
