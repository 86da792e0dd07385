// Writes the results of a load run. JSON keys are an interface: existing keys must not change.
#include "traffic/report.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ctime>
#include <utility>

#include "base/append_format.h"
#include "base/json_writer.h"

namespace quire {
namespace {

using Latency = std::pair<const char*, const LatencyFigures*>;

std::array<Latency, 4> latencies_of(const TrafficFigures& figures, bool is_json) {
  return {{{is_json ? "ttft" : "TTFT", &figures.ttft_ms},
           {is_json ? "tpot" : "TPOT", &figures.tpot_ms},
           {is_json ? "itl" : "ITL", &figures.itl_ms},
           {is_json ? "e2el" : "E2E", &figures.e2el_ms}}};
}

std::string words_of(const GoodputLimits& limits) {
  std::string text;
  for (const auto& [name, limit] : {std::pair("TTFT", limits.ttft_ms), {"TPOT", limits.tpot_ms}, {"E2E", limits.e2el_ms}})
    if (limit) text += fmt::format("{}{} <= {} ms", text.empty() ? "" : ", ", name, *limit);
  return text;
}

// Returns the local time as vLLM writes it: 20261130-221500.
std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts)};
}

// Writes "inf" as vLLM does, because JSON has no infinity.
void write_rate(JsonWriter& json, std::string_view name, double value) {
  if (std::isinf(value))
    json.field(name, "inf");
  else
    json.field(name, value);
}

void write_setup(JsonWriter& json, const TrafficSetup& setup) {
  json.field("date", date_now()).field("backend", "openai").field("endpoint_type", "openai").field("model_id", setup.model);
  json.field("url", setup.url).field("endpoint", setup.path).field("workload", setup.workload);
  json.field("num_prompts", setup.num_prompts).field("max_concurrency", setup.max_concurrency).field("seed", setup.seed);
  if (setup.request_rate)
    write_rate(json, "request_rate", *setup.request_rate);
  else
    json.field("request_rate", nullptr);
  write_rate(json, "burstiness", setup.burstiness);
}

void write_latencies(JsonWriter& json, const TrafficFigures& figures) {
  for (const auto& [name, latency] : latencies_of(figures, true)) {
    json.field(fmt::format("mean_{}_ms", name), latency->values.mean).field(fmt::format("median_{}_ms", name), latency->values.p50);
    json.field(fmt::format("std_{}_ms", name), latency->deviation).field(fmt::format("p50_{}_ms", name), latency->values.p50);
    json.field(fmt::format("p90_{}_ms", name), latency->values.p90).field(fmt::format("p99_{}_ms", name), latency->values.p99);
    json.field(fmt::format("max_{}_ms", name), latency->values.max);
  }
}

void write_details(JsonWriter& json, std::span<const RequestRecord> records) {
  const auto list = [&](std::string_view name, auto value) {
    json.begin_array(name);
    for (const RequestRecord& record : records) json.value(value(record));
    json.end_array();
  };
  list("input_lens", [](const RequestRecord& record) { return record.prompt_tokens; });
  list("output_lens", [](const RequestRecord& record) { return record.output_tokens; });
  list("cached_lens", [](const RequestRecord& record) { return record.cached_tokens; });
  list("ttfts", [](const RequestRecord& record) { return record.ttft_s; });
  list("itls", [](const RequestRecord& record) { return record.gaps_s; });
  list("e2els", [](const RequestRecord& record) { return record.latency_s; });
  list("start_times", [](const RequestRecord& record) { return record.sent_s; });
  list("errors", [](const RequestRecord& record) { return record.failure; });
}

}  // namespace

std::string traffic_table(const TrafficFigures& figures, const TrafficSetup& setup) {
  std::string out;
  const auto row = [&](const char* name, const std::string& value) { append_format(out, "{:<24}{}\n", name, value); };
  const auto row_with_rate = [&](const char* name, std::uint64_t count) {
    row(name, fmt::format("{}   {:.2f} per second", count, figures.per_s(count)));
  };
  row_with_rate("completed", figures.num_completed);
  row("failed", fmt::format("{}", figures.num_failed));
  for (const auto& [reason, count] : figures.failures) append_format(out, "  {}   x {}\n", reason, count);
  if (figures.num_unfinished > 0) row("stopped early", fmt::format("{} requests have no result", figures.num_unfinished));
  row("duration, s", fmt::format("{:.2f}", figures.duration_s));
  if (figures.goodput_per_s) row("goodput", fmt::format("{:.2f} per second ({})", *figures.goodput_per_s, words_of(setup.limits)));
  row_with_rate("input tokens", figures.input_tokens);
  if (figures.has_cached_tokens && figures.input_tokens > 0)
    row("  of them cached", fmt::format("{}   {:.1f} %", figures.cached_tokens,
                                        100.0 * static_cast<double>(figures.cached_tokens) / static_cast<double>(figures.input_tokens)));
  row_with_rate("output tokens", figures.output_tokens);
  row("  in the best second", fmt::format("{:.0f}", figures.max_output_tokens_per_s));
  row("peak concurrency", fmt::format("{}", figures.peak_concurrency));
  if (figures.num_completed == 0) return out;
  append_format(out, "\n{:<16}{:>12}{:>12}{:>12}{:>12}\n", "", "mean", "p50", "p90", "p99");
  for (const auto& [name, latency] : latencies_of(figures, false))
    append_format(out, "{:<16}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}\n", fmt::format("{}, ms", name), latency->values.mean,
                  latency->values.p50, latency->values.p90, latency->values.p99);
  if (!figures.has_usage)
    out += "The server reports no usage: input tokens are the lengths of the workload, and an output token is a chunk of the stream.\n";
  return out;
}

std::string traffic_json(const TrafficFigures& figures, const TrafficSetup& setup, std::span<const RequestRecord> details) {
  std::string out = json_object([&](JsonWriter& json) {
    write_setup(json, setup);
    json.field("duration", figures.duration_s).field("completed", figures.num_completed).field("failed", figures.num_failed);
    json.field("unfinished", figures.num_unfinished);
    json.field("total_input_tokens", figures.input_tokens).field("total_output_tokens", figures.output_tokens);
    json.field("total_cached_tokens", figures.has_cached_tokens ? std::optional(figures.cached_tokens) : std::nullopt);
    json.field("has_usage", figures.has_usage).field("request_throughput", figures.per_s(figures.num_completed));
    json.field("request_goodput", figures.goodput_per_s).field("output_throughput", figures.per_s(figures.output_tokens));
    json.field("total_token_throughput", figures.per_s(figures.input_tokens + figures.output_tokens));
    json.field("max_output_tokens_per_s", figures.max_output_tokens_per_s).field("max_concurrent_requests", figures.peak_concurrency);
    write_latencies(json, figures);
    json.begin_array("failures");
    for (const auto& [reason, count] : figures.failures) json.begin_object().field("reason", reason).field("count", count).end_object();
    json.end_array().begin_array("timeline");
    for (const TrafficSample& sample : figures.timeline)
      json.begin_array().value(sample.time_s).value(sample.num_running).value(sample.output_tokens_per_s).end_array();
    json.end_array();
    if (!details.empty()) write_details(json, details);
  });
  return out + "\n";
}

}  // namespace quire
