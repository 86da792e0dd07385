// What /metrics shows, made anew on the server's thread for each scrape from copies of the counters. Names are those of vLLM where it has
// the value: dashboards know them, so a name that is there stays.
#include "server/operate/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "base/append_format.h"
#include "server/operate/explanation.h"
#include "server/operate/tier_fields.h"

namespace quire {

namespace {

// A label's value, escaped as the text format wants it.
std::string label_text(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

class Writer {
 public:
  explicit Writer(const std::string& model_name) : labels_(fmt::format(R"(engine="0",model_name="{}")", label_text(model_name))) {}

  void header(const char* name, const char* type, const char* help) { append("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type); }

  template <class Number>
  void value(const char* name, Number number, const std::string& more = {}) {
    append("{}{{{}{}}} {}\n", name, labels_, more, number);
  }
  template <class Number>
  void gauge(const char* name, const char* help, Number number) {
    header(name, "gauge", help);
    value(name, number);
  }
  void counter(const char* name, const char* help, std::uint64_t number) {
    header(name, "counter", help);
    value(name, number);
  }

  void histogram(const char* name, const char* help, const HistogramSnapshot& snapshot) {
    header(name, "histogram", help);
    for (std::size_t i = 0; i < snapshot.counts.size(); ++i) {
      const std::string bound = i < snapshot.bounds.size() ? fmt::format("{}", snapshot.bounds[i]) : "+Inf";
      append("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels_, bound, snapshot.counts[i]);
    }
    const std::uint64_t total = snapshot.counts.empty() ? 0 : snapshot.counts.back();  // the counts are cumulative
    append("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels_, snapshot.sum, name, labels_, total);
  }

  std::string take() { return std::move(text_); }

 private:
  template <class... Args>
  void append(fmt::format_string<Args...> format, Args&&... args) {
    append_format(text_, format, std::forward<Args>(args)...);
  }
  std::string labels_;
  std::string text_;
};

void write_tiers(Writer& out, const std::vector<KvTierStats>& tiers) {
  if (tiers.empty()) return;
  for (const TierField& field : tier_fields()) {
    const std::string name = fmt::format("quire:kv_tier_{}{}", field.name, field.is_counter ? "_total" : "");
    out.header(name.c_str(), field.is_counter ? "counter" : "gauge", field.help);
    for (const KvTierStats& tier : tiers) out.value(name.c_str(), field.value(tier), fmt::format(R"(,tier="{}")", tier.name));
  }
}

void write_swap(Writer& out, const KvSwapStats& swap) {
  out.gauge("quire:kv_swap_places", "Places for blocks of preempted requests.", swap.num_places);
  out.gauge("quire:kv_swap_far_places", "Of the places, those in files.", swap.num_far_places);
  out.gauge("quire:kv_swap_used_places", "Places in use.", swap.num_used_places);
  out.counter("quire:kv_swap_out_requests_total", "Preempted requests whose blocks were put aside.", swap.num_out);
  out.counter("quire:kv_swap_out_blocks_total", "Blocks put aside.", swap.num_out_blocks);
  out.counter("quire:kv_swap_in_requests_total", "Requests that went on with their blocks.", swap.num_in);
  out.counter("quire:kv_swap_in_blocks_total", "Blocks brought back.", swap.num_in_blocks);
  out.counter("quire:kv_swap_in_tokens_total", "Tokens that were not computed again.", swap.num_in_tokens);
  out.counter("quire:kv_swap_lost_total", "Requests put aside and computed again all the same: a transfer failed, or others lacked blocks.",
              swap.num_lost);
  out.counter("quire:kv_swap_no_place_total", "Preempted requests computed again for lack of places.", swap.num_no_place);
  out.counter("quire:kv_swap_no_gain_total", "Preempted requests computed again because that was as fast.", swap.num_no_gain);
  out.counter("quire:kv_swap_refused_total", "Blocks whose bytes were not those that were put aside.", swap.num_refused_blocks);
  out.gauge("quire:kv_swap_out_bytes_per_second", "How fast blocks are put aside, measured.", swap.out_bytes_per_s);
  out.gauge("quire:kv_swap_in_bytes_per_second", "How fast blocks are brought back, measured.", swap.in_bytes_per_s);
  out.gauge("quire:kv_swap_far_out_bytes_per_second", "The same, to files.", swap.far_out_bytes_per_s);
  out.gauge("quire:kv_swap_far_in_bytes_per_second", "The same, from files.", swap.far_in_bytes_per_s);
}

void write_residency(Writer& out, const KvResidencyStats& blocks) {
  out.histogram("vllm:kv_block_lifetime_seconds", "From taking a KV cache block to its eviction, of a share of the blocks.",
                blocks.lifetime_s);
  out.histogram("vllm:kv_block_idle_before_evict_seconds", "From the last use of a KV cache block to its eviction, of the same share.",
                blocks.idle_before_evict_s);
  out.histogram("vllm:kv_block_reuse_gap_seconds", "Between two uses of a KV cache block, its last four, of the same share.",
                blocks.reuse_gap_s);
}

void write_speculation(Writer& out, const SpeculationStats& drafts) {
  out.counter("vllm:spec_decode_num_drafts_total", "Steps of requests that had drafts.", drafts.num_drafts);
  out.counter("vllm:spec_decode_num_draft_tokens_total", "Draft tokens computed.", drafts.num_draft_tokens);
  out.counter("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens that were right.", drafts.num_accepted_tokens);
  constexpr const char* kPerPosition = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
  out.header(kPerPosition, "counter", "Draft tokens that were right, by their place among the drafts.");
  for (std::size_t i = 0; i < drafts.num_accepted_per_position.size(); ++i)
    out.value(kPerPosition, drafts.num_accepted_per_position[i], fmt::format(R"(,position="{}")", i));
}

std::string joined(const std::vector<std::string>& names) {
  return label_text(fmt::format("{}", fmt::join(names, ",")));
}

// vLLM's gauge says all by its labels, and its value when that was so.
void write_adapters(Writer& out, const AdapterStats& adapters, const EngineStats& engine) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  out.header("vllm:lora_requests_info", "gauge", "LoRA adapters of requests that run and wait.");
  out.value("vllm:lora_requests_info", now.count(),
            fmt::format(R"(,max_lora="{}",running_lora_adapters="{}",waiting_lora_adapters="{}")", adapters.max_loras,
                        joined(engine.running_adapters), joined(engine.waiting_adapters)));
  out.gauge("quire:loras_known", "LoRA adapters that requests may name.", adapters.num_known);
  out.gauge("quire:loras_resident", "Sets of adapter weights in memory (--max-cpu-loras at most).", adapters.num_resident);
  out.gauge("quire:lora_bytes", "Bytes of adapter weights in memory, but for those that only requests under way still have.",
            adapters.bytes);
  out.counter("quire:lora_loads_total", "Times that an adapter's files were read.", adapters.num_loads);
  out.counter("quire:lora_evictions_total", "Sets of adapter weights that made room for others.", adapters.num_evictions);
  out.counter("quire:lora_load_failures_total", "Times that an adapter's files could not be read.", adapters.num_failed_loads);
}

void write_expert_reads(Writer& out, const ExpertReads& experts) {
  out.counter("quire:experts_used_total", "Experts that passes went through, each once in a layer.", experts.num_used);
  out.counter("quire:experts_read_total", "Of these, experts that were not in memory (--expert-memory).", experts.num_read);
  out.counter("quire:expert_bytes_read_total", "Bytes of these experts.", experts.bytes_read);
  out.counter("quire:expert_matrices_damaged_total",
              "Matrices whose bytes in --weights-cache were not those that were written: packed again.", experts.num_damaged);
}

template <class Cause, class Values>
void write_by_cause(Writer& out, const char* name, const char* help, const Values& values) {
  out.header(name, "counter", help);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] > 0) out.value(name, values[i], fmt::format(",cause=\"{}\"", name_of(static_cast<Cause>(i))));
}

void write_causes(Writer& out, const ExplainTotals& causes) {
  write_by_cause<MissCause>(out, "quire:prompt_tokens_missed_total", "Prompt tokens that no cache had, by cause.", causes.missed_tokens);
  write_by_cause<EventCause>(out, "quire:request_waited_seconds_total", "Time that requests waited, by cause.", causes.waited_s);
  write_by_cause<EventCause>(out, "quire:preemptions_by_cause_total", "Requests put back, by cause.", causes.preemptions);
}

void write_engine(Writer& out, const EngineStats& engine) {
  const double used = engine.num_blocks == 0 ? 0.0 : 1.0 - static_cast<double>(engine.num_free_blocks) / engine.num_blocks;
  out.gauge("vllm:num_requests_running", "Requests in the running batch.", engine.num_running);
  out.gauge("vllm:num_requests_waiting", "Requests that wait for admission, preempted and held back ones included.", engine.num_waiting);
  out.gauge("vllm:kv_cache_usage_perc", "KV cache blocks in use; 1 means all of them.", used);
  out.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", engine.prefix_cache_queries);
  out.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", engine.prefix_cache_hits);
  out.counter("vllm:external_prefix_cache_queries_total",
              "Prompt tokens that tiers and connectors were asked for, behind the prefix cache.", engine.external_prefix_cache_queries);
  out.counter("vllm:external_prefix_cache_hits_total", "Prompt tokens that they had, and that were loaded.",
              engine.external_prefix_cache_hits);
  out.counter("vllm:num_preemptions_total", "Requests put back to be computed again.", engine.num_preemptions);
  out.counter("quire:forks_total", "Requests forked from another one.", engine.num_forks);
  out.counter("quire:copied_blocks_total", "KV cache blocks copied because forks shared them.", engine.num_copied_blocks);
  out.counter("vllm:prompt_tokens_total", "Prompt tokens, computed or found in a cache.", engine.prompt_tokens);
  out.counter("vllm:prompt_tokens_cached_total", "Prompt tokens found in a cache.", engine.prompt_tokens_cached);
  out.counter("vllm:generation_tokens_total", "Tokens generated.", engine.generation_tokens);
  out.header("vllm:request_success_total", "counter", "Requests that ended, by reason.");
  out.value("vllm:request_success_total", engine.finished_stop, R"(,finished_reason="stop")");
  out.value("vllm:request_success_total", engine.finished_length, R"(,finished_reason="length")");
  out.value("vllm:request_success_total", engine.finished_abort, R"(,finished_reason="abort")");
  out.value("vllm:request_success_total", engine.finished_error, R"(,finished_reason="error")");
  out.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", engine.time_to_first_token_s);
  out.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request.", engine.inter_token_latency_s);
  out.histogram("vllm:time_per_output_token_seconds", "As inter_token_latency_seconds, under its older name.",
                engine.inter_token_latency_s);
  out.histogram("vllm:e2e_request_latency_seconds", "From arrival to the end.", engine.e2e_latency_s);
  out.histogram("vllm:request_queue_time_seconds", "From arrival to admission.", engine.queue_time_s);
  out.counter("quire:steps_total", "Engine steps.", engine.num_steps);
  out.gauge("quire:paused", "1 while the engine is paused.", engine.is_paused ? 1 : 0);
  out.counter("quire:kv_cache_evicted_blocks_total", "Cached blocks taken for other content.", engine.num_evicted_blocks);
  out.gauge("quire:kv_cache_blocks", "KV cache blocks there are.", engine.num_blocks);
  out.gauge("quire:kv_cache_named_blocks", "KV cache blocks that the prefix cache can find.", engine.num_named_blocks);
  out.gauge("quire:kv_cache_free_blocks", "KV cache blocks free, cached ones included.", engine.num_free_blocks);
  out.gauge("quire:pinned_requests", "Ended requests whose blocks stay for the next turn of their job.", engine.num_pinned);
  out.gauge("quire:kv_pressure", "Share of the KV cache blocks that requests hold.", used);
  out.gauge("quire:admission_stopped", "1 while the pressure admits nobody (--kv-pressure-high).", engine.is_admission_stopped ? 1 : 0);
  out.counter("quire:admission_stops_total", "Times that the pressure stopped admission.", engine.num_admission_stops);
  out.counter("quire:pressure_preemptions_total", "Requests preempted for the pressure alone (--kv-pressure-preempt).",
              engine.num_pressure_preemptions);
  if (engine.speculation) write_speculation(out, *engine.speculation);
  if (engine.adapters) write_adapters(out, *engine.adapters, engine);
  if (engine.expert_reads.num_used > 0) write_expert_reads(out, engine.expert_reads);
  if (engine.kv_swap) write_swap(out, *engine.kv_swap);
  if (engine.kv_residency) write_residency(out, *engine.kv_residency);
  if (engine.common_prefix_blocks)
    out.histogram("quire:common_prefix_blocks",
                  "KV cache blocks that all requests began with, in steps of two or more (--count-common-prefix).",
                  *engine.common_prefix_blocks);
  write_tiers(out, engine.kv_tiers);
  write_causes(out, engine.explained);
  out.counter("quire:trace_steps_total", "Steps written to the trace.", engine.trace_steps);
  out.counter("quire:trace_steps_dropped_total", "Steps missing in the trace: the disk is slow, full or broken.",
              engine.trace_steps_dropped);
  out.counter("quire:kv_event_batches_total", "Batches of KV cache events that were published (--kv-events-config).",
              engine.kv_event_batches);
  out.counter("quire:kv_event_batches_dropped_total", "Batches that were not: the publisher did not keep up.",
              engine.kv_event_batches_dropped);
  out.counter("quire:journal_bytes_total", "Written to the journal (--journal).", engine.journal_bytes);
  out.gauge("quire:journal_ended", "1 where the journal takes no more: its budget is reached, or the disk is slow, full or broken.",
            engine.journal_ended.empty() ? 0 : 1);
  out.gauge("quire:journal_memory_bytes", "Of the journal's last minutes, in memory (--journal-memory).", engine.journal_memory_bytes);
  out.histogram("quire:step_seconds", "One engine step.", engine.step_time_s);
  out.histogram("quire:scheduler_seconds", "The scheduler's part of a step.", engine.scheduler_time_s);
  out.histogram("quire:forward_seconds", "The forward pass of a step.", engine.forward_time_s);
  out.histogram("quire:sample_seconds", "The sampling of a step.", engine.sample_time_s);
}

void write_server(Writer& out, const ServerStats& server) {
  out.gauge("quire:process_resident_bytes", "Resident memory of the process.", resident_bytes());
  out.gauge("quire:connections", "Open connections.", server.num_connections);
  out.counter("quire:connections_total", "Connections accepted.", server.connections_total);
  out.counter("quire:connections_refused_total", "Connections over the limit.", server.connections_refused_total);
  out.counter("quire:connections_given_up_total", "Idle or half-heard connections closed to make room.", server.connections_given_up_total);
  out.counter("quire:clients_gone_total", "Clients that left before their answer was complete.", server.clients_gone_total);
  out.counter("quire:clients_stalled_total", "Clients that did not read their stream.", server.clients_stalled_total);
  out.counter("quire:log_lines_dropped_total", "Log lines that were not written because nobody read them.", server.log_lines_dropped_total);
  out.counter("quire:spans_sent_total", "Spans of requests that the OpenTelemetry collector took.", server.spans_sent_total);
  out.counter("quire:spans_dropped_total", "Spans of requests that it did not take.", server.spans_dropped_total);
  out.header("quire:http_responses_total", "counter", "Responses by HTTP status.");
  for (const auto& [status, count] : server.responses_total)
    out.value("quire:http_responses_total", count, fmt::format(",status=\"{}\"", status));
}

}  // namespace

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total_pages = 0, resident_pages = 0;
  file >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string metrics_text(const EngineStats& engine, const ServerStats& server, const std::string& model_name) {
  Writer out(model_name);
  write_engine(out, engine);
  write_server(out, server);
  return out.take();
}

}  // namespace quire
