// Writes the answers of /v1/watch from the engine's frames and statistics. Runs on the server's thread; the engine answers between two
// steps. An answer must contain no tokens and no text of prompts or answers. The server stores nothing per client: each client sends the
// number of the newest frame that it has.
#include "server/operate/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>

#include "base/base64.h"
#include "base/json_writer.h"
#include "server/api/serving.h"
#include "server/http/query.h"
#include "server/operate/cache_status.h"
#include "server/operate/explanation.h"

namespace quire {
namespace {

constexpr std::uint64_t kFramesPerSecond = 16;  // more than the actual rate
constexpr double kUsesPerSecond = 10.0;         // unit of WatchedBlock::last_use

// Indexed by enumerator: a new enumerator needs an entry here too.
constexpr std::array<std::string_view, kNumWatchedStates> kStates = {"queued",    "grammar", "loading", "input",
                                                                     "preempted", "prefill", "decode",  "pinned"};

void append_varint(std::string& out, std::uint64_t value) {
  constexpr std::uint64_t kMore = 0x80;
  for (; value >= kMore; value >>= 7U) out += static_cast<char>(value | kMore);
  out += static_cast<char>(value);
}

void append_run(std::string& out, std::size_t num_passed, std::size_t num_blocks, const WatchedBlock& block, std::uint32_t now) {
  append_varint(out, num_passed);
  append_varint(out, num_blocks);
  append_varint(out, block.flags);
  append_varint(out, block.num_holders);
  append_varint(out, block.num_hits);
  append_varint(out, block.owner == WatchedBlock::kNoOwner ? 0 : std::uint64_t{block.owner} + 1);
  append_varint(out, block.last_use == 0 ? 0 : std::uint64_t{now - std::min(now, block.last_use)} + 1);
}

template <class Cause, class Values>
void write_causes(JsonWriter& json, std::string_view name, const Values& values) {
  json.begin_object(name);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] > 0) json.field(name_of(static_cast<Cause>(i)), values[i]);
  json.end_object();
}

void write_engine(JsonWriter& json, const EngineStats& engine) {
  json.begin_object("engine").field("running", engine.num_running).field("waiting", engine.num_waiting).field("pinned", engine.num_pinned);
  json.field("blocks", engine.num_blocks).field("free_blocks", engine.num_free_blocks).field("open_transfers", engine.num_open_transfers);
  json.field("paused", engine.is_paused).field("admission_stopped", engine.is_admission_stopped).field("steps", engine.num_steps);
  json.field("forks", engine.num_forks).field("preemptions", engine.num_preemptions).field("evicted_blocks", engine.num_evicted_blocks);
  json.field("prompt_tokens", engine.prompt_tokens).field("prompt_tokens_cached", engine.prompt_tokens_cached);
  json.field("generation_tokens", engine.generation_tokens).field("query_tokens", engine.prefix_cache_queries);
  json.field("hit_tokens", engine.prefix_cache_hits).field("tier_query_tokens", engine.external_prefix_cache_queries);
  json.field("tier_hit_tokens", engine.external_prefix_cache_hits).begin_object("ended");
  json.field("stop", engine.finished_stop + engine.finished_repetition).field("length", engine.finished_length);
  json.field("abort", engine.finished_abort).field("error", engine.finished_error).end_object().end_object();
}

constexpr const char* kRequestFields[] = {"id",          "name",          "tenant", "state",           "waits_for",
                                          "arrival_s",   "prompt_tokens", "tokens", "computed_tokens", "cached_tokens",
                                          "tier_tokens", "preemptions",   "blocks"};

// Writes requests as arrays, because field names in each request would be most of the bytes.
void write_requests(JsonWriter& json, const WatchFrame& frame, bool has_causes) {
  json.field("request_fields", kRequestFields).begin_array("requests");
  std::string_view text = frame.text;
  for (const WatchedRequest& request : frame.requests) {
    const std::string_view name = text.substr(0, request.name_size), tenant = text.substr(request.name_size, request.tenant_size);
    text.remove_prefix(name.size() + tenant.size());
    const bool has_cause = has_causes && request.state < WatchedState::prefill;
    json.begin_array().value(request.id.value).value(name).value(tenant).value(kStates.at(static_cast<std::size_t>(request.state)));
    json.value(has_cause ? std::optional(name_of(request.waits_for)) : std::nullopt).value(request.arrival_s);
    json.value(request.num_prompt_tokens).value(request.num_tokens).value(request.num_computed_tokens);
    json.value(request.num_cached_tokens).value(request.num_external_tokens).value(request.num_preemptions).value(request.num_blocks);
    json.end_array();
  }
  json.end_array();
}

}  // namespace

std::string changed_blocks(const std::vector<WatchedBlock>& blocks, const std::vector<std::uint32_t>& changed, std::uint32_t since,
                           double now_s) {
  std::string out;
  const auto now = static_cast<std::uint32_t>(now_s * kUsesPerSecond);
  std::size_t end = 0;  // end of the previous run
  for (std::size_t i = 0; i < blocks.size();) {
    if (changed[i] <= since) {
      ++i;
      continue;
    }
    std::size_t next = i + 1;
    while (next < blocks.size() && changed[next] > since && blocks[next] == blocks[i]) ++next;
    append_run(out, i - end, next - i, blocks[i], now);
    i = end = next;
  }
  return out;
}

WatchRoute::WatchRoute(Serving& serving)
    : serving_(&serving), first_frame_(static_cast<std::uint64_t>(serving.started_s()) * kFramesPerSecond) {}

Result<std::uint32_t> WatchRoute::since_of(const HttpRequest& request) const {
  QueryReader query(request.target);
  const std::string text = query.text("since", "0");
  std::uint64_t since = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), since);
  if (failed != std::errc() || end != text.data() + text.size())
    query.reject("since", "is not a frame number", "send the `frame` of the last answer, or leave it out for all blocks");
  if (const auto done = query.finish(); !done) return std::unexpected(done.error());
  return since > first_frame_ && since - first_frame_ <= frame_ ? static_cast<std::uint32_t>(since - first_frame_) : 0;
}

Reply WatchRoute::handle(const HttpRequest& request, const Wake& wake) {
  const auto since = since_of(request);
  if (!since) return serving_->refuse(since.error());
  const auto age = std::chrono::steady_clock::now() - frame_time_;
  if (frame_ > 0 && age < kInterval) return answer(*since);
  if (waiting_.size() >= kMaxWaitingClients)
    return serving_->refuse(
        {ErrorCode::overloaded, "", fmt::format("{} requests are already waiting for a frame", kMaxWaitingClients), "try again"});
  waiting_.push_back({*since, std::make_shared<PendingReply>(), wake});
  Reply reply{HttpResponse{}, nullptr, waiting_.back().reply};
  if (waiting_.size() == 1) request_frame();
  return reply;
}

void WatchRoute::request_frame() {
  if (spare_ == nullptr) spare_ = std::make_shared<WatchFrame>();
  serving_->engine().engine().watch(
      std::move(spare_), serving_->engine().on_server<std::shared_ptr<WatchFrame>>([this](auto answer) { take(std::move(answer)); }));
  spare_ = nullptr;
}

void WatchRoute::take(Result<std::shared_ptr<WatchFrame>> answered) {
  const std::vector<Waiting> waiting = std::exchange(waiting_, {});
  std::optional<Error> refusal;
  if (answered) {
    spare_ = std::exchange(newest_, *std::move(answered));
    ++frame_;
    frame_time_ = std::chrono::steady_clock::now();
    compare();
    head_ = write_head();
    changes_.clear();
  } else {
    refusal = std::move(answered.error());
  }
  for (const Waiting& one : waiting) {
    one.reply->reply = refusal ? serving_->refuse(*refusal) : answer(one.since);
    one.wake();
  }
}

// Sets changed_ for the blocks that differ from the previous frame. A free cached block keeps its last owner.
void WatchRoute::compare() {
  changed_.resize(newest_->blocks.size(), 0);
  for (std::size_t i = 0; i < changed_.size(); ++i) {
    WatchedBlock& block = newest_->blocks[i];
    const WatchedBlock before = spare_ != nullptr && i < spare_->blocks.size() ? spare_->blocks[i] : WatchedBlock{};
    if (block.num_holders == 0 && (block.flags & WatchedBlock::kCached) != 0) block.owner = before.owner;
    if (block != before) changed_[i] = frame_;
  }
}

std::string WatchRoute::write_head() const {
  const Engine& engine = serving_->engine().engine();
  const EngineStats stats = engine.stats();
  std::string out;
  JsonWriter json(out);
  json.fixed_field("time_s", newest_->now_s, 3).field("interval_ms", kInterval.count());
  json.field("block_size", engine.options().cache.block_size);
  write_engine(json, stats);
  write_causes<MissCause>(json, "missed_tokens", stats.explained.missed_tokens);
  write_causes<EventCause>(json, "waited_s", stats.explained.waited_s);
  write_causes<EventCause>(json, "preemptions_by_cause", stats.explained.preemptions);
  write_tiers(json, stats.kv_tiers);
  if (const auto& swap = stats.kv_swap) {
    json.begin_object("swap").field("slots", swap->num_places).field("used_slots", swap->num_used_slots);
    json.field("out_blocks", swap->num_out_blocks).field("in_blocks", swap->num_in_blocks).field("slot_bytes", swap->place_bytes);
    json.end_object();
  }
  write_requests(json, *newest_, engine.options().explained_requests > 0);
  json.field("requests_left_out", newest_->num_left_out);
  return out;
}

Reply WatchRoute::answer(std::uint32_t since) {
  // If since == frame_, the client polled again before there was a new frame, so there is nothing to write.
  if (since != frame_ && (changes_.empty() || written_since_ != since)) {
    const std::string bytes = changed_blocks(newest_->blocks, changed_, since, newest_->now_s);
    changes_ = json_object([&](JsonWriter& json) {
      json.field("count", newest_->blocks.size()).field("changes", base64_of(std::as_bytes(std::span(bytes))));
    });
    written_since_ = since;
  }
  return Serving::json_reply([&](JsonWriter& json) {
    json.field("object", "watch").field("frame", first_frame_ + frame_);
    json.field("since", since == 0 ? std::nullopt : std::optional(first_frame_ + since));
    if (since != frame_) json.raw(head_).raw_field("blocks", changes_);
  });
}

}  // namespace quire
