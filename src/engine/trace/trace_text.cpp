// Writes the lines of the trace (docs/trace.md). The names are an interface, so existing names must not change. Runs on the thread of
// TraceWriter, one step after another. No recorded step may be skipped, because properties of a request are sent only once and outputs are
// sent in parts. All text from clients is escaped by base/json_writer.
#include "engine/trace/trace_text.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>

#include "base/json_writer.h"

namespace quire {
namespace {

const char* word(SchedulingPolicy policy) {
  switch (policy) {
    case SchedulingPolicy::fcfs:
      return "fcfs";
    case SchedulingPolicy::priority:
      return "priority";
    case SchedulingPolicy::continuum:
      return "continuum";
  }
  return "unknown";
}

const char* word(QueueKind queue) {
  constexpr std::array<const char*, 4> kWords = {"running", "waiting", "skipped_waiting", "pinned"};
  return kWords.at(static_cast<std::size_t>(queue));
}

// Returns vLLM's name for the status.
const char* word(RequestStatus status) {
  // Indexed by the enumerator's value: a new enumerator needs an entry here.
  constexpr std::array<const char*, 12> kWords = {"WAITING",
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
  return kWords.at(static_cast<std::size_t>(status));
}

const char* word(EventKind what) {
  // Indexed by the enumerator's value: a new enumerator needs an entry here.
  constexpr std::array<const char*, 25> kWords = {"step_begins",   "prefix_looked_up", "admission_tried", "admission_blocked",
                                                  "preempted",     "block_cached",     "block_evicted",   "pinned",
                                                  "unpinned",      "forked",           "unshared",        "gave_way",
                                                  "pressure_high", "pressure_low",     "swapped_out",     "swapped_in",
                                                  "swap_declined", "swap_lost",        "queued",          "passed_over",
                                                  "queue_held",    "admitted",         "ended",           "block_forgotten",
                                                  "cache_reset"};
  return kWords.at(static_cast<std::size_t>(what));
}

const char* word(EventCause cause) {
  // Indexed by the enumerator's value: a new enumerator needs an entry here.
  constexpr std::array<const char*, 20> kWords = {
      "none",       "lack_of_blocks", "expired", "replaced",        "job_over", "ended_by_host", "above_high",
      "below_low",  "no_place",       "no_gain", "failed_transfer", "paused",   "no_tokens",     "no_slot",
      "preempting", "grammar",        "loading", "connector",       "adapter",  "input"};
  return kWords.at(static_cast<std::size_t>(cause));
}

// Builds one JSON object on one line.
class Line {
 public:
  explicit Line(std::string& out) : json(out), out_(out) { json.begin_object(); }
  ~Line() {
    json.end_object();
    out_ += '\n';
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  JsonWriter json;

 private:
  std::string& out_;
};

// A short text in a fixed buffer, because steps must not allocate memory.
class ShortText {
 public:
  explicit ShortText(RequestId id) : end_(fmt::format_to(text_.data(), "{}", id.value)) {}
  explicit ShortText(const BlockHashBytes& name) : end_(fmt::format_to(text_.data(), "{:02x}", fmt::join(name, ""))) {}
  operator std::string_view() const { return {text_.data(), end_}; }

 private:
  std::array<char, 2 * sizeof(BlockHashBytes)> text_;
  char* end_;
};

void write_time(JsonWriter& json, const TraceStep& step) {
  json.field("step", step.step.value).fixed_field("ts", step.time_s, 6);
}

void begin(JsonWriter& json, const char* event, const TraceStep& step, const TraceFacts& facts) {
  json.field("event", event);
  write_time(json, step);
  json.field("policy", word(facts.policy));
}

}  // namespace

void TraceText::append_snapshot(const TraceStep& step, std::string& out) const {
  const auto count = [&](QueueKind queue) {
    std::uint32_t number = 0;
    for (const TracedRequest& r : step.requests) number += r.queue == queue ? 1 : 0;
    return number;
  };
  std::uint32_t pinned_blocks = 0;
  for (const TracedRequest& r : step.requests) pinned_blocks += r.queue == QueueKind::pinned ? r.num_blocks : 0;
  Line line(out);
  JsonWriter& json = line.json;
  const auto ids = [&](const char* name, QueueKind queue) {
    json.begin_array(name);
    for (const TracedRequest& r : step.requests)
      if (r.queue == queue) json.value(ShortText(known_[r.place].facts.id));
    json.end_array();
  };
  const auto jobs = [&](const char* name, QueueKind queue) {
    json.begin_array(name);
    for (const TracedRequest& r : step.requests)
      if (r.queue == queue) json.value(unless_empty(known_[r.place].facts.job));
    json.end_array();
  };
  begin(json, "step_snapshot", step, facts_);
  json.field("free_blocks", step.num_free_blocks).field("total_blocks", step.num_blocks).field("num_running", count(QueueKind::running));
  json.field("num_waiting", count(QueueKind::waiting)).field("num_pinned", count(QueueKind::pinned));
  ids("running_req_ids", QueueKind::running);
  ids("waiting_req_ids", QueueKind::waiting);
  jobs("running_job_ids", QueueKind::running);
  jobs("waiting_job_ids", QueueKind::waiting);
  json.field("gpu_cached_blocks", step.num_cached_blocks);
  const auto tier = [&](const char* name, auto member) {
    json.field(name, step.tier ? std::optional((*step.tier).*member) : std::nullopt);
  };
  tier("cpu_free_blocks", &TracedTier::num_free);
  tier("cpu_total_blocks", &TracedTier::num_places);
  tier("cpu_cached_blocks", &TracedTier::num_held);
  json.field("pinned_blocks", pinned_blocks);
  jobs("pinned_job_ids", QueueKind::pinned);
  json.field("max_num_running_reqs", facts_.max_num_seqs).field("max_num_scheduled_tokens", facts_.max_num_batched_tokens);
  json.begin_object("quire");
  ids("skipped_waiting_req_ids", QueueKind::skipped_waiting);
  ids("pinned_req_ids", QueueKind::pinned);
  json.end_object();
}

void TraceText::append_request(const TracedRequest& r, const Known& known, const TraceStep& step, std::string& out) {
  const TracedFacts& f = known.facts;
  Line line(out);
  JsonWriter& json = line.json;
  write_time(json, step);
  json.field("queue", word(r.queue)).field("req_id", ShortText(f.id)).field("job_id", unless_empty(f.job));
  json.field("is_last_step", f.is_last_step).field("status", word(r.status)).field("priority", f.priority);
  json.fixed_field("arrival_time", f.arrival_time, 6).field("client_index", f.client_index).field("max_tokens", f.max_tokens);
  json.field("num_prompt_tokens", f.num_prompt_tokens).field("num_tokens", r.num_tokens);
  json.field("num_output_tokens", r.num_tokens - f.num_prompt_tokens).field("num_computed_tokens", r.num_computed_tokens);
  json.field("num_cached_tokens", r.num_cached_tokens).field("num_preemptions", r.num_preemptions);
  json.field("num_external_computed_tokens", r.num_external_computed_tokens).field("num_nans_in_logits", 0);
  json.field("num_encoder_inputs", f.num_encoder_inputs).field("is_prefill_chunk", r.is_prefill_chunk).field("resumable", r.resumable);
  json.field("cache_salt", unless_empty(f.cache_salt)).field("stop_reason", r.stop_token).field("kv_transfer_params", nullptr);
  json.field("prompt_prefix", f.prompt_prefix).field("prompt_suffix", f.prompt_suffix).field("output_tail", known.output_tail);
  for (const char* name : {"prompt_prefix_text", "prompt_suffix_text", "output_tail_text"}) json.field(name, nullptr);
  json.field("spec_tokens_count", r.num_drafts).field("block_hashes_count", r.num_block_hashes).begin_object("quire");
  json.field("num_blocks", r.num_blocks).field("name", unless_empty(f.name)).field("tenant", unless_empty(f.tenant));
  json.begin_object("hints");
  for (const auto& [name, value] : f.hints) json.field(name, value);
  json.end_object().end_object();
}

namespace {

void append_lookup(const TracedLookup& lookup, const TraceStep& step, const TraceFacts& facts, std::string& out) {
  const Event& e = lookup.event;
  Line line(out);
  begin(line.json, "prefix_cache_lookup", step, facts);
  line.json.field("req_id", ShortText(e.owner)).field("job_id", unless_empty(lookup.job)).field("local_hit_tokens", e.amount);
  line.json.field("external_hit_tokens", e.external).field("total_hit_tokens", e.amount + e.external);
  line.json.field("total_prompt_tokens", lookup.num_prompt_tokens).field("num_tokens", e.total);
  line.json.field("connector", unless_empty(facts.connector)).field("load_kv_async", e.load_async);
}

// Writes an event that exists only in quire.
void append_event(const Event& e, std::string& out) {
  Line line(out);
  JsonWriter& json = line.json;
  json.field("event", "quire").field("step", e.step.value).field("what", word(e.what)).field("cause", word(e.cause));
  const bool of_block = e.what == EventKind::block_cached || e.what == EventKind::block_evicted || e.what == EventKind::block_forgotten;
  const bool of_all = e.what == EventKind::pressure_high || e.what == EventKind::pressure_low;
  const bool has_no_owner = e.what == EventKind::block_evicted || e.what == EventKind::block_forgotten || e.what == EventKind::cache_reset;
  if (!has_no_owner && !of_all) json.field("owner", ShortText(e.owner));
  const bool for_another = e.what == EventKind::preempted || e.what == EventKind::forked || e.what == EventKind::gave_way;
  if (for_another || e.what == EventKind::block_evicted) json.field("beneficiary", ShortText(e.beneficiary));
  if (of_block) json.field("block", e.block.value).field("name", ShortText(e.name));
  if (e.what == EventKind::block_cached && e.parent != BlockHashBytes{}) json.field("parent", ShortText(e.parent));
  const bool of_order = e.what == EventKind::passed_over || e.what == EventKind::queue_held || e.what == EventKind::cache_reset;
  if (!of_block && !of_order) json.field("blocks", e.amount);
  if (of_all) json.field("of_blocks", e.total);
}

void append_decision(const TraceStep& step, const TraceFacts& facts, std::string& out) {
  Line line(out);
  JsonWriter& json = line.json;
  begin(json, "step_decision", step, facts);
  const auto ids = [&](const char* name, const auto& scheduled) {
    json.begin_array(name);
    for (const auto& [request, num_tokens] : scheduled) json.value(ShortText(request));
    json.end_array();
  };
  ids("scheduled_new_req_ids", step.fresh);
  ids("scheduled_resumed_req_ids", step.resumed);
  ids("scheduled_running_req_ids", step.running);
  json.begin_array("preempted_req_ids");
  for (const RequestId request : step.preempted) json.value(ShortText(request));
  json.end_array().begin_object("num_scheduled_tokens");
  for (const auto* part : {&step.running, &step.fresh, &step.resumed})
    for (const auto& [request, num_tokens] : *part) json.field(ShortText(request), num_tokens);
  json.end_object();
  if (facts.counts_common_prefix) json.begin_object("quire").field("num_common_prefix_blocks", step.num_common_prefix_blocks).end_object();
}

}  // namespace

// Stores the new properties of requests. Called before any line is written, because requests refer to their properties by slot, and a slot
// may have a new request in this step.
void TraceText::learn(const TraceStep& step) {
  for (const TracedFacts& facts : step.facts) {
    if (facts.place >= known_.size()) known_.resize(facts.place + 1);
    known_[facts.place].facts = facts;
    known_[facts.place].output_tail.clear();
  }
  auto fresh = step.outputs.begin();
  for (const TracedRequest& r : step.requests) {
    std::vector<TokenId>& tail = known_[r.place].output_tail;
    tail.insert(tail.end(), fresh, fresh + r.num_fresh_outputs);
    fresh += r.num_fresh_outputs;
    if (tail.size() > kTracedTail) tail.erase(tail.begin(), tail.end() - kTracedTail);
  }
}

void TraceText::append(const TraceStep& step, std::string& steps, std::string& requests) {
  learn(step);
  for (const Event& e : step.events_before) append_event(e, steps);
  if (step.has_queues) {
    append_snapshot(step, steps);
    for (const TracedRequest& r : step.requests)
      // vllm-pace records only these two queues.
      if (r.queue == QueueKind::running || r.queue == QueueKind::waiting) append_request(r, known_[r.place], step, requests);
  }
  for (const TracedLookup& lookup : step.lookups) append_lookup(lookup, step, facts_, steps);
  for (const Event& e : step.events) append_event(e, steps);
  if (step.has_queues) append_decision(step, facts_, steps);
}

}  // namespace quire
