#include "server/models/models_metrics.h"

#include <fmt/format.h>

#include <array>

#include "base/append_format.h"
#include "quire/engine_metric_table.h"

namespace quire {

namespace {

struct ModelMetric {
  const char* name;
  MetricKind kind;
  const char* help;
  double (*value)(const ModelStatus& status);
};

// clang-format off
constexpr auto kModelMetrics = std::to_array<ModelMetric>({
    {"quire:model_loads_total", kCounter, "Total number of loads of the model.",
     [](const ModelStatus& s) { return static_cast<double>(s.loads_total); }},
    {"quire:model_load_failures_total", kCounter, "Total number of loads of the model that failed.",
     [](const ModelStatus& s) { return static_cast<double>(s.load_failures_total); }},
    {"quire:model_load_seconds_total", kCounter, "Total time of the loads of the model, in seconds.",
     [](const ModelStatus& s) { return s.load_seconds_total; }},
    {"quire:model_unloads_total", kCounter, "Total number of unloads of the model.",
     [](const ModelStatus& s) { return static_cast<double>(s.unloads_total); }},
    {"quire:model_crashes_total", kCounter, "Total number of unexpected ends of the model's process.",
     [](const ModelStatus& s) { return static_cast<double>(s.crashes_total); }},
    {"quire:model_requests_running", kGauge, "Current number of requests that the model's process answers.",
     [](const ModelStatus& s) { return static_cast<double>(s.num_running); }},
    {"quire:model_requests_waiting", kGauge, "Current number of requests that wait until the model is loaded.",
     [](const ModelStatus& s) { return static_cast<double>(s.num_waiting); }},
});
// clang-format on

std::string escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

void append_head(std::string& text, const char* name, MetricKind kind, const char* help) {
  append_format(text, "# HELP {0} {2}\n# TYPE {0} {1}\n", name, kind == kCounter ? "counter" : "gauge", help);
}

}  // namespace

std::string models_metrics_text(const ModelPool& pool) {
  const auto& entries = pool.options().entries;
  std::string text;
  for (const ModelMetric& metric : kModelMetrics) {
    append_head(text, metric.name, metric.kind, metric.help);
    for (std::size_t i = 0; i < entries.size(); ++i)
      append_format(text, "{}{{model_name=\"{}\"}} {}\n", metric.name, escaped(entries[i].name), metric.value(pool.status(i)));
  }
  const auto begin_state = [&text](const char* name, MetricKind kind, const char* help) { append_head(text, name, kind, help); };
  begin_state("quire:model_state", kGauge, "Current state of the model: 1 for its state, 0 for the other states.");
  for (std::size_t i = 0; i < entries.size(); ++i)
    for (const ModelState state : {ModelState::stopped, ModelState::loading, ModelState::ready, ModelState::unloading})
      append_format(text, "quire:model_state{{model_name=\"{}\",state=\"{}\"}} {}\n", escaped(entries[i].name), name_of(state),
                    pool.status(i).state == state ? 1 : 0);
  begin_state("quire:model_memory_bytes", kGauge, "Estimated memory of the model's process when it is loaded, in bytes.");
  for (const ModelEntry& entry : entries)
    append_format(text, "quire:model_memory_bytes{{model_name=\"{}\"}} {}\n", escaped(entry.name), entry.memory_bytes);
  return text;
}

}  // namespace quire
