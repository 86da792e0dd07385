// quire curve: what other sizes of a running server's KV cache would have found; asked of the server, which knows. On the main thread.
#include "quire/lab/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/ask_server.h"
#include "cli/command.h"
#include "cli/flags/engine_flags.h"

namespace quire {
namespace {

struct CurveFlags {
  ServerAddress server;
  std::string svg;
  std::uint64_t more_bytes = 0;  // 0: not asked
  bool as_json = false;
};

// As GET /v1/cache/curve names it; null: nobody's.
std::string name_in(const boost::json::object& object, std::string_view key) {
  return object.at(key).is_string() ? std::string(object.at(key).get_string()) : std::string();
}

CurveRow row_of(const boost::json::object& row) {
  CurveRow made;
  made.num_blocks = row.at("blocks").to_number<std::uint64_t>();
  made.num_bytes = row.at("bytes").to_number<std::uint64_t>();
  made.label = name_in(row, "label");
  made.hit_rate = row.at("hit_rate").to_number<double>();
  made.saved_tokens_per_s = row.at("saved_prefill_tokens_per_s").to_number<double>();
  if (const boost::json::value& seconds = row.at("saved_prefill_seconds_per_s"); !seconds.is_null())
    made.saved_s_per_s = seconds.to_number<double>();
  return made;
}

std::vector<CurveRow> rows_of(const boost::json::object& curve) {
  std::vector<CurveRow> rows;
  const boost::json::array& given = curve.at("rows").as_array();
  rows.reserve(given.size());
  for (const boost::json::value& row : given) rows.push_back(row_of(row.as_object()));
  return rows;
}

void print_more(const CurveRow& more, std::span<const CurveRow> rows, std::uint64_t more_bytes) {
  const auto now = std::ranges::find_if(rows, [](const CurveRow& row) { return row.label.starts_with("now"); });
  fmt::print("{} more: {:.2f} % are found", format_bytes(more_bytes), 100.0 * more.hit_rate);
  if (now != rows.end()) fmt::print(" instead of {:.2f}", 100.0 * now->hit_rate);
  fmt::print(", {:.1f} tokens per second need not be computed", more.saved_tokens_per_s);
  if (more.saved_s_per_s.has_value()) fmt::print(", {:.4f} s of prefill per second", *more.saved_s_per_s);
  fmt::print("\n");
}

Result<void> draw(const std::string& path, std::span<const CurveRow> rows) {
  if (std::ofstream(path, std::ios::binary) << curve_svg(rows, "KV cache")) return {};
  return fail(ErrorCode::invalid_argument, "--svg", path + " cannot be written", "name a file in a folder that is there");
}

Result<int> show(const boost::json::object& known, const CurveFlags& flags) {
  fmt::print("{:.0f} s of traffic, the last hours most; the reuse of {:.3g} of the blocks is followed\n",
             known.at("seconds").to_number<double>(), known.at("sampling_rate").to_number<double>());
  const boost::json::array& curves = known.at("curves").as_array();
  for (const boost::json::value& value : curves) {
    const boost::json::object& curve = value.as_object();
    const std::string tenant = name_in(curve, "tenant");
    fmt::print("\n{}{:.0f} requests, {:.0f} prompt tokens\n", tenant.empty() ? "" : tenant + ": ", curve.at("requests").to_number<double>(),
               curve.at("prompt_tokens").to_number<double>());
    const std::vector<CurveRow> rows = rows_of(curve);
    fmt::print("{}", curve_table(rows));
    if (const boost::json::value* more = curve.if_contains("more")) print_more(row_of(more->as_object()), rows, flags.more_bytes);
  }
  if (flags.svg.empty() || curves.empty()) return 0;
  if (auto drawn = draw(flags.svg, rows_of(curves.front().as_object())); !drawn) return std::unexpected(drawn.error());
  return 0;
}

Result<int> curve(const CurveFlags& flags) {
  const std::string path = "/v1/cache/curve" + (flags.more_bytes == 0 ? std::string() : fmt::format("?more_bytes={}", flags.more_bytes));
  const Result<std::string> body = get_from(flags.server, path, "curve", "ask as the answer says");
  if (!body) return std::unexpected(body.error());
  if (flags.as_json) {
    fmt::print("{}\n", *body);
    return 0;
  }
  try {
    return show(boost::json::parse(*body).as_object(), flags);
  } catch (const std::exception&) {
    return fail(ErrorCode::corrupt, "--port", "what came back is no curve", "ask a quire of this version");
  }
}

}  // namespace

Command add_curve_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("curve", "Ask a running server what a larger or smaller KV cache would have found");
  auto flags = std::make_shared<CurveFlags>();
  add_server_flags(*command, flags->server, "The server's, or a tenant's, who sees its own curve");
  command->add_option("--more", flags->more_bytes, "So much more memory, too: 8GiB, 512MiB, ...")
      ->type_name("SIZE")
      ->transform(bytes_flag());
  command->add_flag("--json", flags->as_json, "Print the answer as it came");
  command->add_option("--svg", flags->svg, "Draw the first curve, too")->type_name("FILE");
  command->footer("Example:\n  quire curve --port 8000 --more 8GiB --svg curve.svg");
  return {command, [flags]() { return curve(*flags); }};
}

}  // namespace quire
