// Writes the lines of the trace (docs/trace.md). The names are part of an interface, so existing ones never change. Runs on the thread of
// TraceWriter, one step after another. It must see every step that was followed, because facts are sent once and outputs come in parts. All
// text from a client passes through the JSON escaping of base/json_text.
#include "engine/trace/trace_text.h"

#include <fmt/format.h>

#include <array>

#include "base/append_format.h"
#include "base/json_text.h"

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

// Returns vLLM's name of the status.
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

// Writes the fields of one JSON object in sequence.
class Line {
 public:
  explicit Line(std::string& out) : out_(out) { out_ += '{'; }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    append_format(out_, format, std::forward<Args>(args)...);
  }
  // Writes null for an empty value.
  void text(const char* name, std::string_view value) {
    add("\"{}\":", name);
    text_or_null(value);
  }
  void text_or_null(std::string_view value) {
    if (value.empty())
      out_ += "null";
    else
      append_json_string(out_, value);
    out_ += ',';
  }
  // Writes the pairs as a JSON object.
  void texts(const char* name, const std::vector<std::pair<std::string, std::string>>& values) {
    add("\"{}\":{{", name);
    for (const auto& [key, value] : values) {
      append_json_string(out_, key);
      out_ += ':';
      append_json_string(out_, value);
      out_ += ',';
    }
    close('}');
    out_ += ',';
  }
  void tokens(const char* name, std::span<const TokenId> tokens) { add("\"{}\":[{}],", name, fmt::join(tokens, ",")); }
  void id(RequestId id) {
    out_ += '"';
    add("{}", id.value);
    out_ += "\",";
  }
  // Writes a list; `item` appends each element with a comma after it.
  template <class Range, class Item>
  void list(const char* name, const Range& range, Item item) {
    add("\"{}\":[", name);
    for (const auto& one : range) item(one);
    close(']');
    out_ += ',';
  }
  void end() {
    close('}');
    out_ += '\n';
  }
  // Writes the bracket in place of the last comma.
  void close(char bracket) {
    if (out_.back() == ',') out_.pop_back();
    out_ += bracket;
  }

 private:
  std::string& out_;
};

void begin(Line& line, const char* event, const TraceStep& step, const TraceFacts& facts) {
  line.add("\"event\":\"{}\",\"step\":{},\"ts\":{:.6f},\"policy\":\"{}\",", event, step.step.value, step.time_s, word(facts.policy));
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
  const auto ids = [&](const char* name, QueueKind queue) {
    line.list(name, step.requests, [&](const TracedRequest& r) { r.queue == queue ? line.id(known_[r.place].facts.id) : void(); });
  };
  const auto jobs = [&](const char* name, QueueKind queue) {
    line.list(name, step.requests,
              [&](const TracedRequest& r) { r.queue == queue ? line.text_or_null(known_[r.place].facts.job) : void(); });
  };
  begin(line, "step_snapshot", step, facts_);
  line.add("\"free_blocks\":{},\"total_blocks\":{},\"num_running\":{},\"num_waiting\":{},\"num_pinned\":{},", step.num_free_blocks,
           step.num_blocks, count(QueueKind::running), count(QueueKind::waiting), count(QueueKind::pinned));
  ids("running_req_ids", QueueKind::running);
  ids("waiting_req_ids", QueueKind::waiting);
  jobs("running_job_ids", QueueKind::running);
  jobs("waiting_job_ids", QueueKind::waiting);
  line.add("\"gpu_cached_blocks\":{},", step.num_cached_blocks);
  if (step.tier)
    line.add("\"cpu_free_blocks\":{},\"cpu_total_blocks\":{},\"cpu_cached_blocks\":{},", step.tier->num_free, step.tier->num_places,
             step.tier->num_held);
  else
    line.add("\"cpu_free_blocks\":null,\"cpu_total_blocks\":null,\"cpu_cached_blocks\":null,");
  line.add("\"pinned_blocks\":{},", pinned_blocks);
  jobs("pinned_job_ids", QueueKind::pinned);
  line.add("\"max_num_running_reqs\":{},\"max_num_scheduled_tokens\":{},\"quire\":{{", facts_.max_num_seqs, facts_.max_num_batched_tokens);
  ids("skipped_waiting_req_ids", QueueKind::skipped_waiting);
  ids("pinned_req_ids", QueueKind::pinned);
  line.close('}');
  line.end();
}

void TraceText::append_request(const TracedRequest& r, const Known& known, const TraceStep& step, std::string& out) {
  const TracedFacts& f = known.facts;
  Line line(out);
  line.add("\"step\":{},\"ts\":{:.6f},\"queue\":\"{}\",\"req_id\":\"{}\",", step.step.value, step.time_s, word(r.queue), f.id.value);
  line.text("job_id", f.job);
  line.add("\"is_last_step\":{},\"status\":\"{}\",\"priority\":{},\"arrival_time\":{:.6f},\"client_index\":{},\"max_tokens\":{},",
           f.is_last_step, word(r.status), f.priority, f.arrival_time, f.client_index, f.max_tokens);
  line.add("\"num_prompt_tokens\":{},\"num_tokens\":{},\"num_output_tokens\":{},\"num_computed_tokens\":{},\"num_cached_tokens\":{},",
           f.num_prompt_tokens, r.num_tokens, r.num_tokens - f.num_prompt_tokens, r.num_computed_tokens, r.num_cached_tokens);
  line.add("\"num_preemptions\":{},\"num_external_computed_tokens\":{},\"num_nans_in_logits\":0,\"num_encoder_inputs\":{},",
           r.num_preemptions, r.num_external_computed_tokens, f.num_encoder_inputs);
  line.add("\"is_prefill_chunk\":{},\"resumable\":{},", r.is_prefill_chunk, r.resumable);
  line.text("cache_salt", f.cache_salt);
  if (r.stop_token)
    line.add("\"stop_reason\":{},", *r.stop_token);
  else
    line.add("\"stop_reason\":null,");
  line.add("\"kv_transfer_params\":null,");
  line.tokens("prompt_prefix", f.prompt_prefix);
  line.tokens("prompt_suffix", f.prompt_suffix);
  line.tokens("output_tail", known.output_tail);
  line.add("\"prompt_prefix_text\":null,\"prompt_suffix_text\":null,\"output_tail_text\":null,");
  line.add("\"spec_tokens_count\":{},\"block_hashes_count\":{},\"quire\":{{\"num_blocks\":{},", r.num_drafts, r.num_block_hashes,
           r.num_blocks);
  line.text("name", f.name);
  line.text("tenant", f.tenant);
  line.texts("hints", f.hints);
  line.close('}');
  line.end();
}

namespace {

void append_lookup(const TracedLookup& lookup, const TraceStep& step, const TraceFacts& facts, std::string& out) {
  const Event& e = lookup.event;
  Line line(out);
  begin(line, "prefix_cache_lookup", step, facts);
  line.add("\"req_id\":\"{}\",", e.owner.value);
  line.text("job_id", lookup.job);
  line.add("\"local_hit_tokens\":{},\"external_hit_tokens\":{},\"total_hit_tokens\":{},", e.amount, e.external, e.amount + e.external);
  line.add("\"total_prompt_tokens\":{},\"num_tokens\":{},", lookup.num_prompt_tokens, e.total);
  if (facts.connector.empty())
    line.add("\"connector\":null,");
  else
    line.text("connector", facts.connector);
  line.add("\"load_kv_async\":{},", e.load_async);
  line.end();
}

// Writes an event that only quire has.
void append_event(const Event& e, std::string& out) {
  Line line(out);
  line.add("\"event\":\"quire\",\"step\":{},\"what\":\"{}\",\"cause\":\"{}\",", e.step.value, word(e.what), word(e.cause));
  const bool of_block = e.what == EventKind::block_cached || e.what == EventKind::block_evicted || e.what == EventKind::block_forgotten;
  const bool of_all = e.what == EventKind::pressure_high || e.what == EventKind::pressure_low;
  const bool has_no_owner = e.what == EventKind::block_evicted || e.what == EventKind::block_forgotten || e.what == EventKind::cache_reset;
  if (!has_no_owner && !of_all) line.add("\"owner\":\"{}\",", e.owner.value);
  const bool for_another = e.what == EventKind::preempted || e.what == EventKind::forked || e.what == EventKind::gave_way;
  if (for_another || e.what == EventKind::block_evicted) line.add("\"beneficiary\":\"{}\",", e.beneficiary.value);
  if (of_block) line.add("\"block\":{},\"name\":\"{:02x}\",", e.block.value, fmt::join(e.name, ""));
  if (e.what == EventKind::block_cached && e.parent != BlockHashBytes{}) line.add("\"parent\":\"{:02x}\",", fmt::join(e.parent, ""));
  const bool of_order = e.what == EventKind::passed_over || e.what == EventKind::queue_held || e.what == EventKind::cache_reset;
  if (!of_block && !of_order) line.add("\"blocks\":{},", e.amount);
  if (of_all) line.add("\"of_blocks\":{},", e.total);
  line.end();
}

void append_decision(const TraceStep& step, const TraceFacts& facts, std::string& out) {
  Line line(out);
  begin(line, "step_decision", step, facts);
  const auto id = [&](const auto& scheduled) { line.id(scheduled.first); };
  line.list("scheduled_new_req_ids", step.fresh, id);
  line.list("scheduled_resumed_req_ids", step.resumed, id);
  line.list("scheduled_running_req_ids", step.running, id);
  line.list("preempted_req_ids", step.preempted, [&](RequestId preempted) { line.id(preempted); });
  line.add("\"num_scheduled_tokens\":{{");
  for (const auto* part : {&step.running, &step.fresh, &step.resumed})
    for (const auto& [request, num_tokens] : *part) line.add("\"{}\":{},", request.value, num_tokens);
  line.close('}');
  if (facts.counts_common_prefix)
    line.add(",\"quire\":{{\"num_common_prefix_blocks\":[{}]}}", fmt::join(step.num_common_prefix_blocks, ","));
  line.end();
}

}  // namespace

// Called before any line is written: requests refer to their facts by slot, and a slot may have a new request in this step.
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
