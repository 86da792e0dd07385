// Writes the curve of hit rates by cache size as JSON. Runs on the server's thread; the engine collects the data between two steps. A
// client with a tenant's key gets that tenant's curve, never the curve of another tenant or of all.
#include "server/operate/cache_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/append_format.h"
#include "base/json_text.h"
#include "server/api/serving.h"
#include "server/http/query.h"

namespace quire {
namespace {

std::string number_or_null(const std::optional<double>& value) {
  return value.has_value() ? fmt::format("{:.6g}", *value) : "null";
}

std::string text_or_null(std::string_view text) {
  return text.empty() ? "null" : json_string(text);
}

void write_row(std::string& out, const HitRateCurve& curve, const CurveRow& row) {
  append_format(out,
                R"({{"label":{},"bytes":{},"blocks":{},"factor":{:.4g},"hit_rate":{:.6f},"saved_prefill_tokens_per_s":{:.6g},)"
                R"("saved_prefill_seconds_per_s":{}}})",
                text_or_null(row.label), row.num_bytes, row.num_blocks, static_cast<double>(row.num_blocks) / curve.num_blocks,
                row.hit_rate, row.saved_tokens_per_s, number_or_null(row.saved_s_per_s));
}

// `more`: the requested cache size in blocks.
void write_counts(std::string& out, const EngineHitRateCurve& known, const CurveCounts& counts, std::optional<std::uint64_t> more) {
  append_format(out, R"({{"tenant":{},"requests":{:.6g},"prompt_tokens":{:.9g},"found_tokens":{:.9g},"external_tokens":{:.9g},"rows":[)",
                text_or_null(counts.tenant), counts.num_requests, counts.query_tokens, counts.found_tokens, counts.external_tokens);
  const std::vector<CurveRow> rows = curve_rows(known.curve, counts, known.costs);
  for (const CurveRow& row : rows) {
    if (out.back() != '[') out += ',';
    write_row(out, known.curve, row);
  }
  out += ']';
  const std::optional<CurveRow> asked = more.has_value() ? curve_row_at(rows, *more) : std::nullopt;
  if (asked.has_value()) {
    out += R"(,"more":)";
    write_row(out, known.curve, *asked);
  }
  out += '}';
}

Result<CurveRequest> read_request(const Serving& serving, const HttpRequest& request) {
  CurveRequest read;
  // A client with the server's own key has no tenant.
  if (std::string name = serving.tenant_of(request); !name.empty()) read.tenant = std::move(name);
  QueryReader query(request.target);
  read.more_bytes = query.integer("more_bytes");
  if (const auto done = query.finish(); !done) return std::unexpected(done.error());
  return read;
}

}  // namespace

Result<std::string> cache_curve_json(const EngineHitRateCurve& known, const CurveRequest& request) {
  const HitRateCurve& curve = known.curve;
  const double rate = known.costs.prefill_tokens_per_s;
  std::optional<std::uint64_t> more;
  if (request.more_bytes.has_value()) {
    const std::uint64_t most = (curve.sizes.back() - curve.num_blocks) * known.costs.block_bytes;
    if (*request.more_bytes > most)
      return fail(ErrorCode::invalid_argument, "more_bytes", fmt::format("is {}, beyond the end of the curve", *request.more_bytes),
                  fmt::format("send at most {}", most));
    more = curve.num_blocks + *request.more_bytes / std::max<std::uint64_t>(known.costs.block_bytes, 1);
  }
  std::string out =
      fmt::format(R"({{"object":"cache.curve","block_size":{},"block_bytes":{},"blocks":{},"seconds":{:.6g},"prefill_tokens_per_s":{},)"
                  R"("sampling_rate":{:.6g},"followed_blocks":{},"memory_bytes":{},"curves":[)",
                  curve.block_size, known.costs.block_bytes, curve.num_blocks, curve.seconds,
                  number_or_null(rate > 0.0 ? std::optional(rate) : std::nullopt), curve.sampling_rate, curve.num_tracked, curve.num_bytes);
  if (!request.tenant.has_value()) write_counts(out, known, curve.all, more);
  // Requests without a tenant have no separate curve.
  for (const CurveCounts& counts : curve.tenants) {
    if (request.tenant.has_value() ? counts.tenant != *request.tenant : counts.tenant.empty()) continue;
    if (out.back() != '[') out += ',';
    write_counts(out, known, counts, more);
  }
  return out + "]}";
}

Reply show_cache_curve(Serving& serving, HttpRequest& request, const Wake& wake) {
  auto read = read_request(serving, request);
  if (!read) return serving.refuse(read.error());
  auto pending = std::make_shared<PendingReply>();
  std::optional<std::string> tenant = read->tenant;
  serving.engine().engine().cache_curve(
      std::move(tenant), serving.engine().on_server<EngineHitRateCurve>(
                             [&serving, pending, wake, asked = *std::move(read)](const Result<EngineHitRateCurve>& known) {
                               const Result<std::string> body = known ? cache_curve_json(*known, asked) : std::unexpected(known.error());
                               pending->reply = body ? Serving::json_reply(*body) : serving.refuse(body.error());
                               wake();
                             }));
  return {HttpResponse{}, nullptr, std::move(pending)};
}

}  // namespace quire
