// Writes the text of /metrics for each scrape, on the server's thread, from copies of the counters. The engine's metrics are rows of
// quire/engine_metric_table.h. This file has the server's metrics and the metrics whose labels depend on the values.
#include "server/operate/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/append_format.h"
#include "quire/engine_metric_table.h"
#include "server/operate/explanation.h"

namespace quire {

namespace {

MetricValue process_resident_bytes(const ServerStats& /*server*/) {
  return resident_bytes();
}
MetricValue body_bytes_in_flight(const ServerStats& server) {
  return std::uint64_t{server.bodies != nullptr ? server.bodies->used_bytes() : 0};
}

// clang-format off
constexpr auto kServerMetrics = [] { using S = ServerStats; return std::to_array<Metric<S>>({
    {"quire:process_resident_bytes", kGauge, "Current resident memory of the process, in bytes.", process_resident_bytes},
    {"quire:connections", kGauge, "Current number of open connections.", &S::num_connections},
    {"quire:connections_total", kCounter, "Total number of connections accepted.", &S::connections_total},
    {"quire:connections_refused_total", kCounter, "Total number of connections refused because the maximum number was open.",
     &S::connections_refused_total},
    {"quire:connections_reclaimed_total", kCounter,
     "Total number of connections closed to make room for others: idle ones, or ones with an incomplete header or body.",
     &S::connections_given_up_total, {.old_name = "quire:connections_given_up_total"}},
    {"quire:body_bytes_in_flight", kGauge, "Current number of bytes of request bodies that have arrived and are not parsed yet.",
     body_bytes_in_flight},
    {"quire:slow_bodies_rejected_total", kCounter,
     "Total number of requests rejected because their body arrived too slowly while others needed the memory.", &S::bodies_cut_total,
     {.old_name = "quire:bodies_cut_total"}},
    {"quire:clients_disconnected_total", kCounter, "Total number of clients that disconnected before their answer was complete.",
     &S::clients_gone_total, {.old_name = "quire:clients_gone_total"}},
    {"quire:clients_stalled_total", kCounter, "Total number of clients that did not read their stream.", &S::clients_stalled_total},
    {"quire:log_lines_dropped_total", kCounter, "Total number of log lines dropped because the log was not read fast enough.",
     &S::log_lines_dropped_total},
    {"quire:spans_sent_total", kCounter, "Total number of request spans that the OpenTelemetry collector accepted.", &S::spans_sent_total},
    {"quire:spans_dropped_total", kCounter, "Total number of request spans that the OpenTelemetry collector did not accept.",
     &S::spans_dropped_total},
}); }();
// clang-format on

// Returns the value of a label, escaped for Prometheus's text format.
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

  // Begins a metric; its samples follow. If the metric has an old name, its samples are also written under the old name.
  void header(const char* name, MetricKind kind, const char* help, const char* old_name = "") {
    constexpr const char* kTypes[] = {"counter", "gauge", "histogram"};
    const char* const type = kTypes[static_cast<std::size_t>(kind)];
    end_metric();
    append_format(text_, "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
    name_ = name;
    old_name_ = old_name;
    if (!old_name_.empty()) append_format(old_text_, "# HELP {0} Old name of {1}.\n# TYPE {0} {2}\n", old_name_, name, type);
  }
  template <class Stats>
  void header(const Metric<Stats>& metric) {
    header(metric.name, metric.kind, metric.help, metric.more.old_name);
  }

  template <class Number>
  void value(Number number, const std::string& labels = {}) {
    const std::string all = labels.empty() ? labels_ : labels_ + ',' + labels;
    append_format(text_, "{}{{{}}} {}\n", name_, all, number);
    if (!old_name_.empty()) append_format(old_text_, "{}{{{}}} {}\n", old_name_, all, number);
  }
  void value(const HistogramSnapshot* snapshot, const std::string& /*labels*/ = {}) {
    for (std::size_t i = 0; i < snapshot->counts.size(); ++i) {
      const std::string bound = i < snapshot->bounds.size() ? fmt::format("{}", snapshot->bounds[i]) : "+Inf";
      append_format(text_, "{}_bucket{{{},le=\"{}\"}} {}\n", name_, labels_, bound, snapshot->counts[i]);
    }
    const std::uint64_t total = snapshot->counts.empty() ? 0 : snapshot->counts.back();  // the counts are cumulative
    append_format(text_, "{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name_, labels_, snapshot->sum, total);
  }
  template <class Stats>
  void value_of(const Metric<Stats>& metric, const Stats& stats, const std::string& labels) {
    std::visit([&](auto known) { value(known, labels); }, metric.value(stats));
  }

  template <class Table, class Stats>
  void metrics(const Table& table, const Stats& stats) {
    for (const Metric<Stats>& metric : table) {
      if (*metric.help != '\0') header(metric);
      value_of(metric, stats, metric.more.labels);
    }
  }

  std::string take() {
    end_metric();
    return std::move(text_);
  }

 private:
  void end_metric() { text_ += std::exchange(old_text_, {}); }
  std::string labels_;
  std::string text_;
  std::string name_, old_name_, old_text_;  // the current metric, and its text under its old name
};

void write_speculation(Writer& out, const SpeculationStats& drafts) {
  out.metrics(kSpeculationMetrics, drafts);
  out.header("vllm:spec_decode_num_accepted_tokens_per_pos_total", kCounter,
             "Total number of accepted draft tokens by position in the draft.");
  for (std::size_t i = 0; i < drafts.num_accepted_per_position.size(); ++i)
    out.value(drafts.num_accepted_per_position[i], fmt::format(R"(position="{}")", i));
}

std::string joined(const std::vector<std::string>& names) {
  return label_text(fmt::format("{}", fmt::join(names, ",")));
}

// Writes LoRA's metrics. As in vLLM, the labels of vllm:lora_requests_info carry the information, and its value is the current time.
void write_adapters(Writer& out, const AdapterStats& adapters, const EngineStats& engine) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  out.header("vllm:lora_requests_info", kGauge, "LoRA adapters of running and waiting requests, as labels; the value is the current time.");
  out.value(now.count(), fmt::format(R"(max_lora="{}",running_lora_adapters="{}",waiting_lora_adapters="{}")", adapters.max_loras,
                                     joined(engine.running_adapters), joined(engine.waiting_adapters)));
  out.metrics(kAdapterMetrics, adapters);
}

void write_tiers(Writer& out, const std::vector<KvTierStats>& tiers) {
  if (tiers.empty()) return;
  for (const Metric<KvTierStats>& metric : kTierMetrics) {
    out.header(metric);
    for (const KvTierStats& tier : tiers) out.value_of(metric, tier, fmt::format(R"(tier="{}")", tier.name));
  }
}

template <class Cause, class Values>
void write_by_cause(Writer& out, const Values& values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] > 0) out.value(values[i], fmt::format(R"(cause="{}")", name_of(static_cast<Cause>(i))));
}

void write_causes(Writer& out, const ExplainTotals& causes) {
  out.header("quire:prompt_tokens_missed_total", kCounter, "Total number of prompt tokens not found in any cache, by cause.");
  write_by_cause<MissCause>(out, causes.missed_tokens);
  out.header("quire:request_wait_seconds_total", kCounter, "Total time that requests waited, in seconds, by cause.",
             "quire:request_waited_seconds_total");
  write_by_cause<EventCause>(out, causes.waited_s);
  out.header("quire:preemptions_by_cause_total", kCounter, "Total number of preempted requests, by cause.");
  write_by_cause<EventCause>(out, causes.preemptions);
}

void write_engine(Writer& out, const EngineStats& engine) {
  out.metrics(kEngineMetrics, engine);
  if (engine.speculation) write_speculation(out, *engine.speculation);
  if (engine.adapters) write_adapters(out, *engine.adapters, engine);
  if (engine.expert_reads.num_used > 0) out.metrics(kExpertMetrics, engine.expert_reads);
  if (engine.kv_swap) out.metrics(kSwapMetrics, *engine.kv_swap);
  if (engine.kv_residency) out.metrics(kResidencyMetrics, *engine.kv_residency);
  if (engine.common_prefix_blocks) {
    out.header("quire:common_prefix_blocks", kHistogram,
               "Histogram of the number of leading KV cache blocks that all running requests share, in steps with two or more requests "
               "(--count-common-prefix).");
    out.value(&*engine.common_prefix_blocks);
  }
  write_tiers(out, engine.kv_tiers);
  write_causes(out, engine.explained);
  out.metrics(kRecordMetrics, engine);
}

void write_server(Writer& out, const ServerStats& server) {
  out.metrics(kServerMetrics, server);
  out.header("quire:http_responses_total", kCounter, "Total number of responses by HTTP status.");
  for (const auto& [status, count] : server.responses_total) out.value(count, fmt::format(R"(status="{}")", status));
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
