// Writes the curve of hit rates by cache size as JSON. Runs on the server's thread; the engine collects the data between two steps. A
// client with a tenant's key gets only that tenant's curve.
#include "server/operate/cache_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "server/api/serving.h"
#include "server/http/query.h"

namespace quire {
namespace {

void write_row(JsonWriter& json, const HitRateCurve& curve, const CurveRow& row) {
  json.begin_object().field("label", unless_empty(row.label)).field("bytes", row.num_bytes).field("blocks", row.num_blocks);
  json.field("factor", static_cast<double>(row.num_blocks) / curve.num_blocks).fixed_field("hit_rate", row.hit_rate, 6);
  json.field("saved_prefill_tokens_per_s", row.saved_tokens_per_s).field("saved_prefill_seconds_per_s", row.saved_s_per_s);
  json.end_object();
}

// Writes the counts of one curve. `more` is the requested cache size in blocks.
void write_counts(JsonWriter& json, const EngineHitRateCurve& known, const CurveCounts& counts, std::optional<std::uint64_t> more) {
  json.begin_object().field("tenant", unless_empty(counts.tenant)).field("requests", counts.num_requests);
  json.field("prompt_tokens", counts.query_tokens).field("found_tokens", counts.found_tokens);
  json.field("external_tokens", counts.external_tokens).begin_array("rows");
  const std::vector<CurveRow> rows = curve_rows(known.curve, counts, known.costs);
  for (const CurveRow& row : rows) write_row(json, known.curve, row);
  json.end_array();
  const std::optional<CurveRow> asked = more.has_value() ? curve_row_at(rows, *more) : std::nullopt;
  if (asked.has_value()) {
    json.key("more");
    write_row(json, known.curve, *asked);
  }
  json.end_object();
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
  return json_object([&](JsonWriter& json) {
    json.field("object", "cache.curve").field("block_size", curve.block_size).field("block_bytes", known.costs.block_bytes);
    json.field("blocks", curve.num_blocks).field("seconds", curve.seconds);
    json.field("prefill_tokens_per_s", rate > 0.0 ? std::optional(rate) : std::nullopt).field("sampling_rate", curve.sampling_rate);
    json.field("followed_blocks", curve.num_tracked).field("memory_bytes", curve.num_bytes).begin_array("curves");
    if (!request.tenant.has_value()) write_counts(json, known, curve.all, more);
    // Requests without a tenant have no separate curve.
    for (const CurveCounts& counts : curve.tenants)
      if (request.tenant.has_value() ? counts.tenant == *request.tenant : !counts.tenant.empty()) write_counts(json, known, counts, more);
    json.end_array();
  });
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
