// Binds quire.Core: the core, which a Python program steps.
#include "quire/core.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "connector.h"
#include "errors.h"
#include "module.h"
#include "plan.h"

namespace quire::python {
namespace {

using Tokens = std::vector<TokenId>;
using Completion = std::tuple<std::uint64_t, bool, std::vector<std::uint32_t>>;  // transfer, whether it succeeded, bad blocks

Tokens tokens_of(nb::handle value) {
  Tokens tokens;
  if (!nb::try_cast(value, tokens)) throw nb::type_error("tokens: every value must be a list of int");
  return tokens;
}

// Refuses options that have no effect in quire.Core, because it does not report their results or does not have what they limit.
CoreConfig refuse_options_without_effect(CoreConfig config) {
  const std::pair<const char*, bool> given[] = {{"enable_kv_events", config.report.enable_kv_events},
                                                {"kv_metrics_sample", config.report.kv_metrics_sample > 0.0},
                                                {"include_finished_set", config.report.include_finished_set},
                                                {"max_encoder_tokens", config.encoder.max_encoder_tokens > 0},
                                                {"encoder_cache_size", config.encoder.encoder_cache_size > 0},
                                                {"is_encoder_decoder", config.encoder.is_encoder_decoder},
                                                {"disable_chunked_mm_input", config.encoder.disable_chunked_mm_input},
                                                {"pipeline_parallel", config.parallel.pipeline_parallel}};
  for (const auto& [option, is_given] : given)
    if (is_given)
      throw nb::value_error((std::string(option) + ": has no effect on quire.Core; leave it out (only quire.vllm uses it)").c_str());
  return config;
}

// The core for Python: assigns ids, takes results as {id: tokens}, and raises exceptions for wrong use.
class PyCore {
 public:
  PyCore(const CoreConfig& config, const nb::object& connector)
      : connector_(connector.is_none() ? nullptr : std::make_unique<PyConnector>(connector)),
        core_(value_or_raise(Core::create(refuse_options_without_effect(config), {.connector = connector_.get()}))),
        max_plans_(config.limits.max_outstanding_plans),
        num_groups_(config.kv.groups.size()) {}

  std::uint64_t add(const Tokens& prompt, const NewRequest& shape, std::optional<std::uint64_t> id, StepInput input) {
    NewRequest request = shape;
    request.id = RequestId{id.value_or(next_id_)};
    request.prompt = prompt;
    value_or_raise(core_->add(request, input));
    next_id_ = std::max(next_id_, request.id.value + 1);
    return request.id.value;
  }

  nb::object schedule(StepInput input) {
    if (core_->num_outstanding_plans() >= max_plans_)
      raise_state("schedule(): max_outstanding_plans plans are outstanding; call apply() for the oldest plan first");
    const StepPlan& plan = core_->schedule(input);
    add_pending_plan(plan);
    return raise_or_return("plan", to_python(plan));
  }

  nb::object apply(const nb::dict& tokens, const std::vector<std::uint64_t>& pooled, const std::vector<Completion>& completions,
                   StepInput input) {
    if (pending_plans_.empty()) raise_state("apply(): no plan is outstanding; call schedule() first");
    const PendingPlan& oldest = pending_plans_.front();
    StepResult result;
    result.step = oldest.step;
    std::vector<SampledToken> sampled = in_plan_order(oldest, tokens);
    std::vector<RequestId> pooled_ids;
    pooled_ids.reserve(pooled.size());
    for (const std::uint64_t id : pooled) pooled_ids.push_back(RequestId{id});
    result.sampled = sampled;
    result.pooled = pooled_ids;
    std::vector<std::vector<BlockId>> bad_blocks;
    bad_blocks.reserve(completions.size());
    std::vector<TransferCompletion> over;
    for (const auto& [id, is_done, bad] : completions) {
      for (auto& blocks = bad_blocks.emplace_back(); const std::uint32_t block : bad) blocks.push_back(BlockId{block});
      over.push_back({.transfer = TransferId{id},
                      .outcome = is_done ? TransferOutcome::done : TransferOutcome::failed,
                      .bytes = 0,
                      .seconds = 0.0,
                      .bad_blocks = bad_blocks.back()});
    }
    result.completions = over;
    const StepOutcome* outcome = value_or_raise(core_->apply(result, input));
    pending_plans_.erase(pending_plans_.begin());
    return raise_or_return("outcome", to_python(*outcome));
  }

  bool finish(std::uint64_t id, RequestStatus status) {
    if (!is_finished(status))
      throw nb::value_error(
          "status: must be a finished status; use RequestStatus.FINISHED_ABORTED, FINISHED_STOPPED or another FINISHED_ value");
    const bool is_known = core_->finish(RequestId{id}, status) != FinishEffect::unknown;
    raise_or_return("is_known", nb::bool_(is_known));
    return is_known;
  }

  void set_drafts(const nb::dict& drafts) {
    std::vector<Tokens> kept;
    std::vector<Draft> out;
    kept.reserve(drafts.size());
    for (auto [id, tokens] : drafts) {
      kept.push_back(tokens_of(tokens));
      out.push_back({RequestId{nb::cast<std::uint64_t>(id)}, kept.back()});
    }
    core_->set_drafts(out);
  }

  nb::object view(std::uint64_t id) const {
    const std::optional<RequestView> view = core_->view(RequestId{id});
    if (!view) throw nb::key_error(("no request " + std::to_string(id) + "; it may have ended").c_str());
    return to_python(*view);
  }

  std::vector<std::uint32_t> blocks(std::uint64_t id, std::uint32_t group) const {
    view(id);
    if (group >= num_groups_)
      throw nb::value_error(
          ("group: cache group " + std::to_string(group) + " does not exist; number of cache groups: " + std::to_string(num_groups_))
              .c_str());
    std::vector<std::uint32_t> out;
    for (const BlockId block : core_->blocks(RequestId{id}, group)) out.push_back(block.value);
    return out;
  }

  bool reset_prefix_cache(bool preempt_running, bool reset_connector) {
    const bool is_done = value_or_raise(core_->reset_prefix_cache(preempt_running, reset_connector));
    raise_or_return("is_done", nb::bool_(is_done));
    return is_done;
  }

  Core& core() { return *core_; }

 private:
  struct PendingPlan {
    StepId step;
    std::vector<std::pair<RequestId, bool>> scheduled;  // request, and whether it samples a token
  };

  void add_pending_plan(const StepPlan& plan) {
    PendingPlan pending{plan.step, {}};
    for (const ScheduledRequest& request : plan.scheduled) pending.scheduled.emplace_back(request.id, request.samples);
    pending_plans_.push_back(std::move(pending));
  }

  static std::vector<SampledToken> in_plan_order(const PendingPlan& plan, const nb::dict& tokens) {
    std::vector<SampledToken> out;
    std::size_t used = 0;
    for (const auto& [id, samples] : plan.scheduled) {
      const nb::object key = nb::cast(id.value);
      if (!tokens.contains(key)) continue;
      ++used;
      if (!samples)
        throw nb::value_error(("tokens: request " + std::to_string(id.value) + " does not sample in this step; leave it out").c_str());
      for (const TokenId token : tokens_of(tokens[key])) out.push_back({id, token});
    }
    if (used != tokens.size())
      throw nb::value_error("tokens: contains a request that is not in the oldest outstanding plan; use only ids from plan.scheduled");
    return out;
  }

  nb::object raise_or_return(const char* name, nb::object result) {
    if (connector_) connector_->raise_if_failed(name, result);
    return result;
  }

  std::unique_ptr<PyConnector> connector_;  // null: no connector
  std::unique_ptr<Core> core_;
  std::uint32_t max_plans_;
  std::size_t num_groups_;
  std::uint64_t next_id_ = 0;
  std::vector<PendingPlan> pending_plans_;
};

using Class = nb::class_<PyCore>;

void bind_requests(Class& c) {
  c.def(
      "add",
      [](PyCore& self, const Tokens& prompt, std::uint32_t max_tokens, std::uint32_t min_tokens, const Tokens& eos_ids,
         const Tokens& stop_token_ids, std::int64_t priority, double arrival_time, const std::string& cache_salt, std::int64_t lora_id,
         const std::string& lora_name, bool pooling, bool skip_reading_prefix_cache, const std::string& job, bool is_last_step,
         const std::string& tool, std::optional<std::uint64_t> id, double now) {
        const RequestTags tags{.job = job, .is_last_step = is_last_step, .tool = tool};
        NewRequest shape;
        shape.max_tokens = max_tokens;
        shape.min_tokens = min_tokens;
        shape.eos_ids = eos_ids;
        shape.stop_token_ids = stop_token_ids;
        shape.priority = priority;
        shape.arrival_time = arrival_time;
        shape.cache_salt = cache_salt;
        shape.lora_id = lora_id;
        shape.lora_name = lora_name;
        shape.pooling = pooling;
        shape.skip_reading_prefix_cache = skip_reading_prefix_cache;
        shape.tags = &tags;
        return self.add(prompt, shape, id, {.now = now});
      },
      nb::arg("prompt"), nb::kw_only(), nb::arg("max_tokens") = 16, nb::arg("min_tokens") = 0, nb::arg("eos_ids") = Tokens{},
      nb::arg("stop_token_ids") = Tokens{}, nb::arg("priority") = 0, nb::arg("arrival_time") = 0.0, nb::arg("cache_salt") = "",
      nb::arg("lora_id") = 0, nb::arg("lora_name") = "", nb::arg("pooling") = false, nb::arg("skip_reading_prefix_cache") = false,
      nb::arg("job") = "", nb::arg("is_last_step") = false, nb::arg("tool") = "", nb::arg("id") = nb::none(), nb::arg("now") = 0.0,
      "Adds a request to the waiting queue and returns its id.\n\n"
      "prompt: token ids. Cached blocks of an equal prefix are reused; requests with different cache_salt or adapter\n"
      "never share blocks. arrival_time, now: seconds of the caller's clock. id: None chooses a new one. ValueError if\n"
      "the prompt is empty, or longer than max_model_len or the cache allow.");
  c.def("finish", &PyCore::finish, nb::arg("id"), nb::arg("status") = RequestStatus::finished_aborted,
        "Ends a request in any state. Returns False if there is no such request. ValueError if status is not a FINISHED_ value.");
  c.def("set_drafts", &PyCore::set_drafts, nb::arg("drafts"),
        "Sets draft tokens {id: [token, ...]} for the next plan. They are computed with the other tokens of their\n"
        "request. The result of that step then contains the accepted draft tokens and one more token.");
  c.def("__getitem__", &PyCore::view, nb::arg("id"),
        "Returns the current state of a request as a RequestInfo. KeyError if there is no such request.");
  c.def("__contains__", [](PyCore& self, std::uint64_t id) { return self.core().view(RequestId{id}).has_value(); }, nb::arg("id"));
  c.def(
      "blocks", &PyCore::blocks, nb::arg("id"), nb::arg("group") = 0,
      "Returns the block ids of a request in one cache group. KeyError if there is no such request; ValueError if there is no such group.");
}

void bind_steps(Class& c) {
  c.def(
      "schedule", [](PyCore& self, double now, std::uint64_t random) { return self.schedule({now, random}); }, nb::arg("now") = 0.0,
      nb::arg("random") = 0,
      "Decides a step and returns its Plan: which tokens of which requests run, and in which blocks. Each plan must be\n"
      "applied, in order. now: seconds of a monotonic clock. random: seed of the random draws. RuntimeError if\n"
      "max_outstanding_plans plans are outstanding.");
  c.def(
      "apply",
      [](PyCore& self, const nb::dict& tokens, const std::vector<std::uint64_t>& pooled, const std::vector<Completion>& completions,
         double now, std::uint64_t random) { return self.apply(tokens, pooled, completions, {now, random}); },
      nb::arg("tokens"), nb::arg("pooled") = std::vector<std::uint64_t>{}, nb::arg("completions") = std::vector<Completion>{},
      nb::arg("now") = 0.0, nb::arg("random") = 0,
      "Takes the result of the oldest outstanding plan and returns an Outcome.\n\n"
      "tokens: {id: [token, ...]} for every scheduled request with samples: one token, and one more for each accepted\n"
      "draft token. pooled: ids of requests with a pooled output. completions: transfers of the connector that have\n"
      "ended, (id, whether it is done, bad blocks of a failed load; []: all). ValueError if the result does not match\n"
      "the plan; then nothing has changed. RuntimeError if no plan is outstanding.");
  c.def(
      "reset_prefix_cache",
      [](PyCore& self, bool preempt_running, bool reset_connector) { return self.reset_prefix_cache(preempt_running, reset_connector); },
      nb::arg("preempt_running") = false, nb::arg("reset_connector") = false,
      "Forgets all cached prefixes and returns True. Returns False, and keeps them, while a request holds blocks, or if\n"
      "the connector refuses its reset (reset_connector). preempt_running: preempts all running requests first;\n"
      "ValueError if transfers still hold blocks then.");
  c.def("reset_encoder_cache", [](PyCore& self) { self.core().reset_encoder_cache(); }, "Forgets all encoder outputs.");
}

void bind_state(Class& c) {
  c.def_prop_rw(
      "pause_state", [](PyCore& self) { return self.core().pause_state(); },
      [](PyCore& self, PauseState state) { self.core().set_pause_state(state); }, "Which requests may be scheduled.");
  c.def_prop_ro("has_work", [](PyCore& self) { return self.core().has_work(); }, "True if a request is running or waiting.");
  c.def_prop_ro(
      "num_awaiting_transfers", [](PyCore& self) { return self.core().counters().num_awaiting_transfers; },
      "Number of requests with blocks that a transfer fills, and of ended requests with blocks that a transfer keeps.");
  c.def_prop_ro("num_running", [](PyCore& self) { return self.core().counters().num_running; }, "Number of running requests.");
  c.def_prop_ro(
      "num_waiting", [](PyCore& self) { return self.core().counters().num_waiting; },
      "Number of waiting requests, including preempted requests.");
  c.def_prop_ro(
      "num_free_blocks", [](PyCore& self) { return self.core().counters().num_free_blocks; },
      "Number of blocks that no request holds, including cached blocks.");
  c.def_prop_ro("num_preemptions", [](PyCore& self) { return self.core().counters().num_preemptions; }, "Total number of preemptions.");
  c.def_prop_ro(
      "num_outstanding_plans", [](PyCore& self) { return self.core().num_outstanding_plans(); },
      "Number of plans that are not applied yet.");
  c.def(
      "snapshot",
      [](PyCore& self) {
        CoreSnapshot snapshot;
        self.core().snapshot(snapshot);
        return to_python(snapshot);
      },
      "Returns a copy of the whole state as a dict: queues, requests, blocks with reference counts and keys, the free queue in order.");
  c.def(
      "check_invariants", [](PyCore& self) { self.core().check_invariants(); },
      "Recomputes all invariants and stops the program if one is broken. For tests.");
}

}  // namespace

void bind_core(nb::module_& m) {
  Class c(m, "Core",
          "The scheduler and KV-cache manager, stepped by hand:\n\n"
          "    core = quire.Core(quire.CoreConfig(num_blocks=64, max_model_len=1024))\n"
          "    request = core.add([1, 2, 3], max_tokens=2)\n"
          "    while core.has_work:\n"
          "        plan = core.schedule()\n"
          "        core.apply({r.id: [7] for r in plan.scheduled if r.samples})\n\n"
          "Deterministic, without clock, threads or random source: equal calls give equal plans. Not thread-safe. Misuse\n"
          "raises an exception and changes nothing.");
  c.def(nb::init<const CoreConfig&, const nb::object&>(), nb::arg("config"), nb::arg("connector") = nb::none(),
        "connector: a quire.connectors.Connector. An exception from one of its methods is raised by the call of the core\n"
        "that asked it; the result of that call is then the exception's attribute `plan` or `outcome`. ValueError if\n"
        "options cannot be served; the message names the option and the remedy.");
  bind_requests(c);
  bind_steps(c);
  bind_state(c);
}

}  // namespace quire::python
