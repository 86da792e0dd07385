// quire curve: shows the hit rates that other sizes of a running server's KV cache would have had. Runs on the main thread.
#include "quire/lab/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/format_bytes.h"
#include "cli/command.h"
#include "cli/flags/engine_flags.h"
#include "cli/result_files.h"
#include "cli/server_client.h"

namespace quire {
namespace {

struct CurveFlags {
  ServerAddress server;
  std::string html;
  std::uint64_t more_bytes = 0;  // 0: not requested
  bool as_json = false;
};

// Returns a text field in the answer of GET /v1/cache/curve; empty if the field is null.
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
  fmt::print("{} more: {:.2f} % of prompt tokens are cached", format_bytes(more_bytes), 100.0 * more.hit_rate);
  if (now != rows.end()) fmt::print(" instead of {:.2f} %", 100.0 * now->hit_rate);
  fmt::print("; saves {:.1f} prefill tokens per second", more.saved_tokens_per_s);
  if (more.saved_s_per_s.has_value()) fmt::print(", {:.4f} s of prefill time per second", *more.saved_s_per_s);
  fmt::print("\n");
}

void show(const boost::json::object& known, const CurveFlags& flags) {
  fmt::print("{:.0f} s of traffic, recent hours weighted most; {:.3g} of the blocks are tracked\n", known.at("seconds").to_number<double>(),
             known.at("sampling_rate").to_number<double>());
  for (const boost::json::value& value : known.at("curves").as_array()) {
    const boost::json::object& curve = value.as_object();
    const std::string tenant = name_in(curve, "tenant");
    fmt::print("\n{}{:.0f} requests, {:.0f} prompt tokens\n", tenant.empty() ? "" : tenant + ": ", curve.at("requests").to_number<double>(),
               curve.at("prompt_tokens").to_number<double>());
    const std::vector<CurveRow> rows = rows_of(curve);
    fmt::print("{}", curve_table(rows));
    if (const boost::json::value* more = curve.if_contains("more")) print_more(row_of(more->as_object()), rows, flags.more_bytes);
  }
}

Result<int> curve(const CurveFlags& flags) {
  const std::string path = "/v1/cache/curve" + (flags.more_bytes == 0 ? std::string() : fmt::format("?more_bytes={}", flags.more_bytes));
  const Result<std::string> body = get_from(flags.server, path, "curve", "change the request as the error message says");
  if (!body) return std::unexpected(body.error());
  if (const auto wrote = write_html(flags.html, *body); !wrote) return std::unexpected(wrote.error());
  if (flags.as_json) {
    fmt::print("{}\n", *body);
    return 0;
  }
  try {
    show(boost::json::parse(*body).as_object(), flags);
    return 0;
  } catch (const std::exception&) {
    return fail(ErrorCode::corrupt, "--port", "the server did not return a curve", "use a server with the same quire version");
  }
}

}  // namespace

Command add_curve_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("curve", "Predict the hit rates of a running server with a larger or smaller KV cache");
  auto flags = std::make_shared<CurveFlags>();
  add_server_flags(*command, flags->server, "API key of the server, or of a tenant to get the curve of that tenant");
  command->add_option("--more", flags->more_bytes, "Additional memory to predict the hit rate for: 8GiB, 512MiB, ...")
      ->type_name("SIZE")
      ->transform(bytes_flag());
  command->add_flag("--json", flags->as_json, "Print the JSON answer of the server");
  add_html_flag(*command, flags->html);
  command->footer("Example:\n  quire curve --port 8000 --more 8GiB --html curve.html");
  return {command, [flags]() { return curve(*flags); }};
}

}  // namespace quire
