// The picture of a traced run.
// One row per request, one column per step; text from the trace is escaped, since the file may come from anywhere.
// Called by `quire trace`, on the main thread.
#include <fmt/format.h>

#include <algorithm>

#include "base/append_format.h"
#include "cli/trace_run.h"

namespace quire {
namespace {

constexpr int kLeft = 160, kTop = 40, kLane = 12, kBand = 120, kGap = 24;

const char* colour(LaneState state) {
  switch (state) {
    case LaneState::absent:
      return "none";
    case LaneState::waiting:
      return "#e3d9a8";
    case LaneState::loading:
      return "#8fb996";
    case LaneState::running:
      return "#bcd4e6";
    case LaneState::computed:
      return "#2b6ca3";
    case LaneState::preempted:
      return "#c0392b";
    case LaneState::pinned:
      return "#8e63b0";
  }
  return "none";
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40))
    if (c == '<' || c == '&' || c == '>' || c == '"' || static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("&#{};", static_cast<unsigned char>(c) < 0x20 ? 0x20 : static_cast<int>(c));
    else
      out += c;
  return out;
}

class Picture {
 public:
  explicit Picture(const TraceRun& run)
      : run_(run),
        step_width_(std::clamp(1000.0 / static_cast<double>(run.rows.size()), 1.0, 16.0)),
        band_top_(lane_top(run.lanes.size()) + kGap) {}

  std::string draw() {
    const double width = x(run_.rows.size()) + 20;
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"10\">\n", width,
        band_top_ + kBand + 40);
    add("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
    legend();
    for (std::size_t i = 0; i < run_.lanes.size(); ++i) lane(i);
    band();
    add("</svg>\n");
    return std::move(out_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    append_format(out_, format, std::forward<Args>(args)...);
  }
  [[nodiscard]] double x(std::size_t row) const { return kLeft + step_width_ * static_cast<double>(row); }
  [[nodiscard]] static int lane_top(std::size_t lane) { return kTop + kLane * static_cast<int>(lane); }

  void legend() {
    int left = kLeft;
    for (const auto& [state, label] : {std::pair(LaneState::waiting, "waiting"), std::pair(LaneState::running, "in the batch, no tokens"),
                                       std::pair(LaneState::computed, "computed"), std::pair(LaneState::preempted, "preempted"),
                                       std::pair(LaneState::pinned, "ended, blocks pinned")}) {
      add("<rect x=\"{}\" y=\"10\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{}\" y=\"19\">{}</text>\n", left, colour(state),
          left + 14, label);
      left += 150;
    }
    add("<text x=\"4\" y=\"19\">{}, steps {} to {}</text>\n", escaped(run_.policy), run_.rows.front().step, run_.rows.back().step);
  }

  // Equal states side by side are one rectangle.
  void lane(std::size_t index) {
    const TraceLane& lane = run_.lanes[index];
    const int top = lane_top(index);
    add("<text x=\"4\" y=\"{}\">{} {}</text>\n", top + kLane - 3, escaped(lane.request), escaped(lane.job));
    for (std::size_t begin = 0, end = 0; begin < lane.states.size(); begin = end) {
      while (end < lane.states.size() && lane.states[end] == lane.states[begin]) ++end;
      if (lane.states[begin] != LaneState::absent) box(lane.first + begin, lane.first + end, top, kLane - 2, colour(lane.states[begin]));
    }
  }

  void box(std::size_t begin, std::size_t end, double top, double height, const char* fill) {
    add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x(begin), top, x(end) - x(begin), height,
        fill);
  }

  // Of all blocks those in use, and of these the pinned ones.
  void band() {
    add("<text x=\"4\" y=\"{}\">blocks in use</text><text x=\"4\" y=\"{}\">(pinned: violet)</text>\n", band_top_ + 12, band_top_ + 26);
    add("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"#f0f0f0\"/>\n", kLeft, band_top_, x(run_.rows.size()) - kLeft,
        kBand);
    for (std::size_t i = 0; i < run_.rows.size(); ++i) {
      const TraceRow& row = run_.rows[i];
      const double total = std::max<double>(1.0, static_cast<double>(row.total_blocks) - 1.0);
      const double used = kBand * std::clamp(1.0 - static_cast<double>(row.free_blocks) / total, 0.0, 1.0);
      const double pinned = std::min(used, kBand * static_cast<double>(row.pinned_blocks) / total);
      if (used > 0) box(i, i + 1, band_top_ + kBand - used, used - pinned, "#6f9f6f");
      if (pinned > 0) box(i, i + 1, band_top_ + kBand - pinned, pinned, colour(LaneState::pinned));
    }
  }

  const TraceRun& run_;
  const double step_width_;
  const int band_top_;
  std::string out_;
};

}  // namespace

std::string trace_svg(const TraceRun& run) {
  return Picture(run).draw();
}

}  // namespace quire
