// Binds quire._core.VllmBridge, which is private to quire.vllm.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "errors.h"
#include "module.h"
#include "plan.h"
#include "vllm/bridge.h"
#include "vllm/fast.h"

namespace quire::python {
namespace {

using Tokens = std::vector<TokenId>;
using Class = nb::class_<Bridge>;
// A multimodal item: identifier, offset, length, and the mask of positions that have an embedding, or None.
using Feature = std::tuple<std::string, std::uint32_t, std::uint32_t, std::optional<std::vector<bool>>>;

std::vector<MultimodalFeature> features_of(const std::vector<Feature>& given) {
  std::vector<MultimodalFeature> out;
  for (const auto& [identifier, offset, length, mask] : given) {
    if (mask) {
      const std::vector<std::uint8_t> bytes(mask->begin(), mask->end());
      out.push_back({identifier, PlaceholderRange(offset, bytes)});
    } else {
      out.push_back({identifier, PlaceholderRange(offset, length)});
    }
  }
  return out;
}

std::uint32_t clamp_to_uint32(std::int64_t value) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(value, 0, UINT32_MAX));
}

// End conditions of a request, or of an input of a session.
struct EndConditions {
  std::int64_t min_tokens = 0;
  Tokens eos_ids, stop_token_ids;
  std::tuple<std::int32_t, std::int32_t, std::int32_t> repetition;  // smallest and largest pattern length, number of repetitions
};

EndConditions end_conditions_of(const nb::dict& fields) {
  return {nb::cast<std::int64_t>(fields["min_tokens"]), nb::cast<Tokens>(fields["eos_ids"]), nb::cast<Tokens>(fields["stop_token_ids"]),
          nb::cast<std::tuple<std::int32_t, std::int32_t, std::int32_t>>(fields["repetition"])};
}

template <class Target>
void set_end_conditions(const EndConditions& conditions, Target& target) {
  target.min_tokens = clamp_to_uint32(conditions.min_tokens);
  target.eos_ids = conditions.eos_ids;
  target.stop_token_ids = conditions.stop_token_ids;
  const auto& [smallest, largest, count] = conditions.repetition;
  target.repetition = {smallest, largest, count};
}

void add(Bridge& self, const nb::object& request, const nb::dict& fields, double now) {
  const EndConditions conditions = end_conditions_of(fields);
  const std::vector<MultimodalFeature> features = features_of(nb::cast<std::vector<Feature>>(fields["multimodal"]));
  const auto lora_name = nb::cast<std::string>(fields["lora_name"]);
  const auto lora_path = nb::cast<std::string>(fields["lora_path"]);
  const auto cache_salt = nb::cast<std::string>(fields["cache_salt"]);
  const nb::object embeds = fields["prompt_embeds"];
  NewRequest made;
  set_end_conditions(conditions, made);
  if (!embeds.is_none()) {
    const auto bytes = nb::cast<nb::bytes>(embeds);
    made.prompt_embeds = {static_cast<const std::byte*>(bytes.data()), bytes.size()};
  }
  made.client_index = nb::cast<std::uint32_t>(fields["client_index"]);
  made.priority = nb::cast<std::int64_t>(fields["priority"]);
  made.arrival_time = nb::cast<double>(fields["arrival_time"]);
  made.max_tokens = clamp_to_uint32(nb::cast<std::int64_t>(fields["max_tokens"]));
  made.pooling = nb::cast<bool>(fields["pooling"]);
  made.structured_output = nb::cast<bool>(fields["structured_output"]);
  made.resumable = nb::cast<bool>(fields["resumable"]);
  made.skip_reading_prefix_cache = nb::cast<bool>(fields["skip_reading_prefix_cache"]);
  made.lora_id = nb::cast<std::int64_t>(fields["lora_id"]);
  made.lora_name = lora_name;
  made.lora_path = lora_path;
  made.cache_salt = cache_salt;
  made.multimodal = features;
  RequestTags tags;
  if (const auto given = nb::cast<nb::dict>(fields["tags"]); !given.empty()) {
    tags = {.job = nb::cast<std::string>(given["job"]),
            .is_last_step = nb::cast<bool>(given["is_last_step"]),
            .tool = nb::cast<std::string>(given["tool"]),
            .tenant = {}};
    made.tags = &tags;
  }
  self.add(request, made, nb::cast<bool>(fields["pass_hashes"]), {.now = now});
  RequestRecord& record = *self.lookup(request.attr("request_id"));
  record.needs_logprobs = nb::cast<bool>(fields["needs_logprobs"]);
  const nb::object headers = request.attr("trace_headers");
  record.trace_headers = headers.is_none() ? nb::object() : headers;
}

void continue_session(Bridge& self, nb::handle name, const std::optional<nb::dict>& fields, double now) {
  if (!fields) {
    self.continue_session(name, nullptr, {.now = now});
    return;
  }
  const EndConditions conditions = end_conditions_of(*fields);
  const std::vector<MultimodalFeature> features = features_of(nb::cast<std::vector<Feature>>((*fields)["multimodal"]));
  const auto tokens = nb::cast<Tokens>((*fields)["tokens"]);
  SessionInput input;
  set_end_conditions(conditions, input);
  input.tokens = tokens;
  input.multimodal = features;
  input.arrival_time = nb::cast<double>((*fields)["arrival_time"]);
  input.max_tokens = clamp_to_uint32(nb::cast<std::int64_t>((*fields)["max_tokens"]));
  self.continue_session(name, &input, {.now = now});
}

TraceOptions trace_options_of(const nb::dict& given) {
  if (given.empty()) return {};
  return {.path = nb::cast<std::string>(given["path"]),
          .every = nb::cast<std::uint32_t>(given["every"]),
          .max_steps = nb::cast<std::uint64_t>(given["max_steps"]),
          .max_file_bytes = nb::cast<std::uint64_t>(given["file_bytes"]),
          .max_files = nb::cast<std::uint32_t>(given["files"])};
}

JournalOptions journal_options_of(const nb::dict& given) {
  if (given.empty()) return {};
  return {.folder = nb::cast<std::string>(given["folder"]),
          .max_bytes = nb::cast<std::uint64_t>(given["max_bytes"]),
          .memory_bytes = 0,
          .tokens = nb::cast<bool>(given["tokens"])};
}

BridgeOptions options_of(const nb::object& hooks, const nb::dict& given) {
  return {hooks,
          nb::cast<nb::list>(given["statuses"]),
          {given["output"], nb::cast<nb::list>(given["finish_reasons"]), given["event"], nb::cast<nb::list>(given["event_types"])},
          nb::cast<bool>(given["has_connector"]),
          nb::cast<bool>(given["has_encoder_connector"]),
          nb::cast<bool>(given["has_grammar"]),
          nb::cast<bool>(given["detects_tools"]),
          nb::cast<bool>(given["resumed_as_new"]),
          nb::cast<bool>(given["sends_new_token_ids"]),
          nb::cast<std::int32_t>(given["routed_group"]),
          trace_options_of(nb::cast<nb::dict>(given["trace"])),
          nb::cast<std::string>(given["connector"]),
          journal_options_of(nb::cast<nb::dict>(given["journal"])),
          nb::cast<bool>(given["uses_grammar_manager"]),
          nb::object(given["prefill_stats"])};
}

void bind_steps(Class& c) {
  c.def("add", &add, nb::arg("request"), nb::arg("fields"), nb::arg("now"));
  c.def("continue_session", &continue_session, nb::arg("name"), nb::arg("fields").none(), nb::arg("now"));
  c.def("show_session_input", &Bridge::show_session_input, nb::arg("name"));
  c.def(
      "schedule", [](Bridge& self, double now, std::uint64_t random) { return self.schedule({now, random}); }, nb::arg("now"),
      nb::arg("random"));
  c.def(
      "update",
      [](Bridge& self, nb::handle scheduled, nb::handle index, nb::handle sampled, nb::handle logprobs, nb::handle prompt_logprobs,
         nb::handle pooled, nb::handle nans, nb::handle sending, nb::handle receiving, nb::handle invalid, double now, std::uint64_t random,
         nb::handle failed) {
        return self.update({scheduled, index, sampled, logprobs, prompt_logprobs, pooled, nans, sending, receiving, invalid, failed},
                           {now, random});
      },
      nb::arg("scheduled"), nb::arg("index"), nb::arg("sampled").none(), nb::arg("logprobs").none(), nb::arg("prompt_logprobs").none(),
      nb::arg("pooled").none(), nb::arg("nans").none(), nb::arg("finished_sending").none(), nb::arg("finished_receiving").none(),
      nb::arg("invalid_blocks").none(), nb::arg("now"), nb::arg("random"), nb::arg("failed_receiving") = nb::make_tuple());
  c.def("num_idle_before", &Bridge::num_idle_before, nb::arg("scheduled"));
  c.def("set_drafts", &Bridge::set_drafts, nb::arg("names"), nb::arg("drafts"));
  c.def("set_drafts_in_plan", &Bridge::set_drafts_in_plan, nb::arg("names"), nb::arg("drafts"));
  c.def(
      "finish", [](Bridge& self, nb::handle names, RequestStatus status, double now) { return self.finish(names, status, {.now = now}); },
      nb::arg("names").none(), nb::arg("status"), nb::arg("now"));
  c.def(
      "reset_prefix_cache",
      [](Bridge& self, bool preempt, bool connector, double now) { return self.reset_prefix_cache(preempt, connector, {.now = now}); },
      nb::arg("preempt_running"), nb::arg("reset_connector"), nb::arg("now"));
  c.def("reset_connector_cache", &Bridge::reset_connector_cache);
  c.def("reset_encoder_cache", &Bridge::reset_encoder_cache);
  c.def("make_stats", &Bridge::make_stats);
  c.def("flush_trace", &Bridge::flush_trace);
  c.def("flush_journal", &Bridge::flush_journal);
}

void bind_views(Class& c) {
  c.def("requests", &Bridge::requests);
  c.def("stale_requests", &Bridge::stale_requests);
  c.def("request", &Bridge::request, nb::arg("name"));
  c.def("is_prefill_chunk", &Bridge::is_prefill_chunk, nb::arg("name"));
  c.def(
      "is_structured",
      [](const Bridge& self, nb::handle name) {
        const RequestRecord* record = self.lookup(name);
        return record != nullptr && record->structured;
      },
      nb::arg("name"));
  c.def("is_known", [](const Bridge& self, nb::handle name) { return self.lookup(name) != nullptr; }, nb::arg("name"));
  c.def("finished_names", &Bridge::finished_names);
  c.def("block_ids", &Bridge::block_ids, nb::arg("name"));
  c.def(
      "names_of",
      [](const Bridge& self, const std::vector<std::uint64_t>& ids) {
        std::vector<RequestId> typed;
        typed.reserve(ids.size());
        for (const std::uint64_t id : ids) typed.push_back(RequestId{id});
        return self.names_of(typed);
      },
      nb::arg("ids"));
  c.def("queue_names", &Bridge::queue_names, nb::arg("which"));
  c.def("last_step_names", &Bridge::last_step_names);
  c.def(
      "block",
      [](Bridge& self, std::uint32_t block) {
        const std::vector<std::uint8_t> key = self.core().block_key(BlockId{block});
        return nb::make_tuple(self.core().ref_count(BlockId{block}),
                              key.empty() ? nb::none() : nb::object(nb::bytes(key.data(), key.size())));
      },
      nb::arg("block"));
  c.def("snapshot", [](Bridge& self) {
    CoreSnapshot snapshot;
    self.core().snapshot(snapshot);
    return to_python(snapshot);
  });
  c.def("check_invariants", [](Bridge& self) { self.core().check_invariants(); });
  c.def("counts", [](Bridge& self) {
    const CoreCounters counters = self.core().counters();
    return nb::make_tuple(counters.num_running, counters.num_waiting, counters.num_unfinished, counters.num_blocks,
                          counters.num_free_blocks);
  });
  c.def("has_finished_requests", [](Bridge& self) { return self.core().has_finished_requests(); });
  c.def_prop_rw(
      "pause_state", [](Bridge& self) { return self.core().pause_state(); },
      [](Bridge& self, PauseState state) { self.core().set_pause_state(state); });
}

}  // namespace

void bind_vllm(nb::module_& m) {
  Class c(m, "VllmBridge", "The native part of quire.vllm.Scheduler; private.");
  c.def(
      "__init__",
      [](Bridge* self, const CoreConfig& config, const nb::object& hooks, const nb::dict& options) {
        new (self) Bridge(config, options_of(hooks, options));
      },
      nb::arg("config"), nb::arg("hooks"), nb::arg("options"));
  bind_steps(c);
  bind_views(c);
}

}  // namespace quire::python
