// Results as pictures: panels of lines over an axis. Light background, so that they can be shown anywhere. Called by the lab's commands
// when a run is over; pure functions. Names from workloads are escaped.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "base/append_format.h"
#include "lab/report/figures.h"

namespace quire {
namespace {

constexpr double kPanelWidth = 420.0, kPanelHeight = 220.0, kLeft = 64.0, kTop = 44.0, kGapX = 84.0, kGapY = 84.0;
constexpr std::size_t kMostLabels = 10;
constexpr std::array<const char*, 4> kColours = {"#2b6ca3", "#c0392b", "#5b8c3e", "#8e63b0"};

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

struct Panel {
  std::string title, x_name;
  std::vector<PlotLine> lines;
  std::vector<std::string> x_labels = {};  // of x = 0, 1, ...; empty: numbers
  bool dots = false;
};

// To a number whose quarters are short.
double round_up(double value) {
  if (!(value > 0.0)) return 1.0;
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double step : {1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0})
    if (value <= step * power) return step * power;
  return 10.0 * power;
}

std::string svg_text(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80))
    if (c == '<' || c == '&' || c == '>' || c == '"')
      out += fmt::format("&#{};", static_cast<int>(c));
    else
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return out;
}

class Sheet {
 public:
  Sheet(std::string_view title, std::size_t num_panels) {
    const std::size_t num_rows = (num_panels + 1) / 2;
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n",
        2 * (kPanelWidth + kGapX) + 20, 30 + static_cast<double>(num_rows) * (kPanelHeight + kGapY) + 20);
    add("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"12\" y=\"22\" font-size=\"14\">{}</text>\n", svg_text(title));
  }

  void panel(const Panel& panel) {
    const std::size_t row = num_drawn_ / 2, column = num_drawn_ % 2;
    left_ = kLeft + static_cast<double>(column) * (kPanelWidth + kGapX);
    top_ = 30 + kTop + static_cast<double>(row) * (kPanelHeight + kGapY);
    ++num_drawn_;
    find_range(panel);
    add("<text x=\"{:.0f}\" y=\"{:.0f}\" font-weight=\"bold\">{}</text>\n", left_, top_ - 24, svg_text(panel.title));
    axes(panel);
    for (std::size_t i = 0; i < panel.lines.size(); ++i) line(panel.lines[i], kColours[i % kColours.size()], i, panel.dots);
  }

  std::string take() { return std::move(out_) + "</svg>\n"; }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    append_format(out_, format, std::forward<Args>(args)...);
  }

  void find_range(const Panel& panel) {
    x_low_ = x_high_ = y_high_ = 0.0;
    bool first = true;
    for (const PlotLine& line : panel.lines) {
      for (const auto& [x, y] : line.points) {
        x_low_ = first ? x : std::min(x_low_, x);
        x_high_ = first ? x : std::max(x_high_, x);
        y_high_ = std::max(y_high_, y);
        first = false;
      }
    }
    if (x_high_ <= x_low_) x_high_ = x_low_ + 1.0;
    y_high_ = round_up(y_high_);
  }

  [[nodiscard]] double x_of(double x) const { return left_ + (x - x_low_) / (x_high_ - x_low_) * kPanelWidth; }
  [[nodiscard]] double y_of(double y) const { return top_ + kPanelHeight - y / y_high_ * kPanelHeight; }

  void axes(const Panel& panel) {
    for (int i = 0; i <= 4; ++i) {
      const double y = y_high_ * i / 4.0;
      add("<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#dddddd\"/>"
          "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.4g}</text>\n",
          left_, left_ + kPanelWidth, y_of(y), left_ - 6, y_of(y) + 4, y);
    }
    const std::size_t num_labels = panel.x_labels.empty() ? 5 : panel.x_labels.size();
    // Where there are many, some of them.
    for (std::size_t i = 0; i < num_labels; i += num_labels / kMostLabels + 1) {
      const double x = panel.x_labels.empty() ? x_low_ + (x_high_ - x_low_) * static_cast<double>(i) / 4.0 : static_cast<double>(i);
      add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x_of(x), top_ + kPanelHeight + 16,
          panel.x_labels.empty() ? fmt::format("{:.4g}", x) : svg_text(panel.x_labels[i]));
    }
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#666666\">{}</text>\n", left_ + kPanelWidth / 2,
        top_ + kPanelHeight + 32, svg_text(panel.x_name));
  }

  void line(const PlotLine& line, const char* colour, std::size_t index, bool dots) {
    add("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"", colour);
    for (const auto& [x, y] : line.points) add("{:.1f},{:.1f} ", x_of(x), y_of(y));
    add("\"/>\n");
    for (const auto& [x, y] : line.points)
      if (dots) add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x_of(x), y_of(y), colour);
    const double legend = left_ + static_cast<double>(index) * 110.0;
    add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"9\" height=\"9\" fill=\"{}\"/><text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", legend,
        top_ - 17, colour, legend + 13, top_ - 9, svg_text(line.name));
  }

  std::string out_;
  std::size_t num_drawn_ = 0;
  double left_ = 0.0, top_ = 0.0, x_low_ = 0.0, x_high_ = 1.0, y_high_ = 1.0;
};

// The share of requests, in percent, that took no more than x.
PlotLine shares(std::string name, std::vector<double> values) {
  PlotLine line{.name = std::move(name), .points = {}};
  std::ranges::sort(values);
  constexpr std::size_t kPoints = 200;
  for (std::size_t i = 0; i <= kPoints && !values.empty(); ++i) {
    const std::size_t at = i * (values.size() - 1) / kPoints;
    line.points.emplace_back(values[at], 100.0 * static_cast<double>(at + 1) / static_cast<double>(values.size()));
  }
  return line;
}

std::string point_label(const SweepPoint& point) {
  std::string label;
  for (const std::string& value : point.values) label += (label.empty() ? "" : "/") + value;
  return label;
}

}  // namespace

std::string simulation_svg(const SimulationResult& result, std::string_view title) {
  PlotLine running{"running", {}}, waiting{"waiting", {}}, usage{"% of blocks held", {}};
  for (const LoadSample& sample : result.samples) {
    running.points.emplace_back(sample.time_s, sample.num_running);
    waiting.points.emplace_back(sample.time_s, sample.num_waiting);
    usage.points.emplace_back(sample.time_s, sample.kv_usage * 100.0);
  }
  std::vector<double> ttft, queue, tpot;
  for (const RequestTimes& times : result.requests) {
    if (times.last_token_s < 0.0) continue;
    ttft.push_back(times.first_token_s - times.arrival_s);
    queue.push_back(times.scheduled_s - times.arrival_s);
    if (times.output_tokens > 1) tpot.push_back((times.last_token_s - times.first_token_s) / (times.output_tokens - 1.0) * 1e3);
  }
  Sheet sheet(title, 4);
  sheet.panel({.title = "Requests", .x_name = "s", .lines = {running, waiting}});
  sheet.panel({.title = "KV cache", .x_name = "s", .lines = {usage}});
  sheet.panel(
      {.title = "% of requests within", .x_name = "s", .lines = {shares("TTFT", std::move(ttft)), shares("queued", std::move(queue))}});
  sheet.panel({.title = "% of requests within", .x_name = "ms", .lines = {shares("TPOT", std::move(tpot))}});
  return sheet.take();
}

// Sizes double at equal distances, as they are asked about.
std::string curve_svg(std::span<const CurveRow> rows, std::string_view title) {
  PlotLine hits{"hits, %", {}};
  std::vector<std::string> labels;
  labels.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    hits.points.emplace_back(static_cast<double>(i), rows[i].hit_rate * 100.0);
    const double gib = static_cast<double>(rows[i].num_bytes) / (1024.0 * 1024.0 * 1024.0);
    labels.push_back(rows[i].label.empty() ? fmt::format("{:.3g}", gib) : fmt::format("{:.3g} ({})", gib, rows[i].label));
  }
  Sheet sheet(title, 1);
  sheet.panel({.title = "Prompt tokens found", .x_name = "GiB of KV cache", .lines = {hits}, .x_labels = labels, .dots = true});
  return sheet.take();
}

std::string sweep_svg(std::span<const SweepAxis> axes, std::span<const SweepPoint> points, std::span<const SimulationResult> results) {
  std::string names;
  for (const SweepAxis& axis : axes) names += (names.empty() ? "" : "/") + axis.name;
  std::vector<std::string> labels;
  for (const SweepPoint& point : points) labels.push_back(point_label(point));
  using Value = std::function<double(const SimulationResult&)>;
  const auto line = [&](std::string name, const Value& value) {
    PlotLine made{.name = std::move(name), .points = {}};
    for (std::size_t i = 0; i < results.size(); ++i) made.points.emplace_back(static_cast<double>(i), value(results[i]));
    return made;
  };
  const auto percentiles = [&](Distribution SimulationResult::* what, double scale) {
    return std::vector{line("p50", [=](const SimulationResult& r) { return (r.*what).p50 * scale; }),
                       line("p90", [=](const SimulationResult& r) { return (r.*what).p90 * scale; }),
                       line("p99", [=](const SimulationResult& r) { return (r.*what).p99 * scale; })};
  };
  Sheet sheet(names, 4);
  sheet.panel(
      {.title = "TTFT, s", .x_name = names, .lines = percentiles(&SimulationResult::ttft_s, 1.0), .x_labels = labels, .dots = true});
  sheet.panel(
      {.title = "TPOT, ms", .x_name = names, .lines = percentiles(&SimulationResult::tpot_s, 1e3), .x_labels = labels, .dots = true});
  sheet.panel({.title = "Output tokens/s",
               .x_name = names,
               .lines = {line("tokens/s",
                              [](const SimulationResult& r) {
                                return r.makespan_s > 0.0 ? static_cast<double>(r.output_tokens) / r.makespan_s : 0.0;
                              })},
               .x_labels = labels,
               .dots = true});
  sheet.panel({.title = "%",
               .x_name = names,
               .lines = {line("prefix hits", [](const SimulationResult& r) { return hit_rate(r) * 100.0; }),
                         line("KV cache held", [](const SimulationResult& r) { return r.kv_usage_mean * 100.0; })},
               .x_labels = labels,
               .dots = true});
  return sheet.take();
}

}  // namespace quire
