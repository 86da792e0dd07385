// quire._engine.Engine: the public engine (quire/engine.h) for Python. Every call that waits lets go of the GIL.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <future>
#include <string_view>
#include <utility>

#include "engine/generation.h"
#include "engine/parts.h"

namespace quire::python {
namespace {

using Tokens = std::vector<TokenId>;

// The engine's names of what the flags call otherwise.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kNames = {{{"kv_cache_bytes", "kv_cache_memory"},
                                                                                  {"num_threads", "threads"},
                                                                                  {"pressure.admission_watermark", "kv_watermark"},
                                                                                  {"pressure.pressure_high", "kv_pressure_high"},
                                                                                  {"pressure.pressure_preempts", "kv_pressure_preempt"},
                                                                                  {"hash", "prefix_caching_hash_algo"},
                                                                                  {"policy", "scheduling_policy"}}};

template <class T>
T made_or_raise(Result<T> result) {
  if (result) return std::move(*result);
  Error error = result.error();
  for (const auto& [field, name] : kNames)
    if (error.field == field) error.field = name;
  PyObject* const kind = error.code == ErrorCode::not_found                                              ? PyExc_FileNotFoundError
                         : error.code == ErrorCode::io || error.code == ErrorCode::corrupt               ? PyExc_OSError
                         : error.code == ErrorCode::overloaded || error.code == ErrorCode::shutting_down ? PyExc_RuntimeError
                                                                                                         : nullptr;
  if (kind == nullptr) raise(error);
  PyErr_SetString(kind, error.to_string().c_str());
  throw nb::python_error();
}

// What the engine's thread, or the journal's, answers.
template <class T, class Ask>
T answer_to(const Ask& ask) {
  return made_or_raise([&] {
    const nb::gil_scoped_release released;
    std::promise<Result<T>> promise;
    ask([&promise](Result<T> answer) { promise.set_value(std::move(answer)); });
    return promise.get_future().get();
  }());
}

class PyEngine {
 public:
  PyEngine(const std::string& model, EngineConfig config) : serving_(std::make_shared<Serving>()) {
    config.engine.model = model;
    Result<std::unique_ptr<Engine>> engine = [&] {
      const nb::gil_scoped_release released;
      EngineOptions options = config.engine;
      options.adapters.max_loras = config.enable_lora ? config.max_loras : 0;
      for (const auto& [name, path] : config.lora_modules) options.adapters.modules.push_back({.name = name, .path = path});
      return EngineBuilder(options).kv_dram(config.kv_dram).kv_disk(config.kv_disk).kv_remote(config.kv_remote).build();
    }();
    serving_->engine = made_or_raise(std::move(engine));
    const TokenizerSpec& spec = *serving_->engine->model().tokenizer;
    serving_->tokenizer = made_or_raise(Tokenizer::create(spec));
    if (!spec.chat_template.empty())
      if (auto chat = ChatTemplate::parse(spec.chat_template)) serving_->chat = std::move(*chat);
  }

  std::unique_ptr<Generation> submit(Tokens prompt, const SamplingParams& sampling, std::int64_t priority, std::string cache_salt,
                                     RequestTags tags, std::string adapter) {
    std::erase_if(serving_->mailboxes, [](const auto& mailbox) { return mailbox->is_over(); });
    auto mailbox = std::make_shared<Mailbox>();
    EngineRequest request{.prompt = std::move(prompt),
                          .sampling = sampling,
                          .cache_salt = std::move(cache_salt),
                          .priority = priority,
                          .tags = std::move(tags)};
    request.adapter = std::move(adapter);
    Result<RequestId> id = [&] {
      const nb::gil_scoped_release released;
      return serving_->engine->submit(std::move(request), *mailbox);
    }();
    const RequestId known = made_or_raise(std::move(id));
    serving_->mailboxes.push_back(mailbox);
    return std::make_unique<Generation>(serving_, std::move(mailbox), known);
  }

  [[nodiscard]] Tokens encode(const std::string& text) const { return made_or_raise(serving_->tokenizer->encode(text)); }
  [[nodiscard]] std::string decode(const Tokens& tokens) const { return serving_->tokenizer->decode(tokens); }

  [[nodiscard]] Tokens encode_chat(const std::vector<std::pair<std::string, std::string>>& messages) const {
    const auto& chat = serving_->chat;
    if (!chat) throw nb::value_error("messages: this model has no chat template that can be read; give a prompt");
    std::vector<ChatMessage> turns;
    turns.reserve(messages.size());
    for (const auto& [role, content] : messages) turns.push_back({role, content});
    const std::string text = made_or_raise(chat->render(turns, *serving_->tokenizer));
    return made_or_raise(serving_->tokenizer->encode(text, {.add_special = false, .parse_special = true}));
  }

  [[nodiscard]] nb::dict stats() const {
    const EngineStats s = serving_->engine->stats();
    nb::dict out;
    for (const auto& [name, value] :
         std::initializer_list<std::pair<const char*, std::uint64_t>>{{"num_steps", s.num_steps},
                                                                      {"num_running", s.num_running},
                                                                      {"num_waiting", s.num_waiting},
                                                                      {"num_blocks", s.num_blocks},
                                                                      {"num_free_blocks", s.num_free_blocks},
                                                                      {"num_preemptions", s.num_preemptions},
                                                                      {"num_evicted_blocks", s.num_evicted_blocks},
                                                                      {"prompt_tokens", s.prompt_tokens},
                                                                      {"prompt_tokens_cached", s.prompt_tokens_cached},
                                                                      {"generation_tokens", s.generation_tokens},
                                                                      {"prefix_cache_queries", s.prefix_cache_queries},
                                                                      {"prefix_cache_hits", s.prefix_cache_hits},
                                                                      {"finished_stop", s.finished_stop},
                                                                      {"finished_length", s.finished_length},
                                                                      {"finished_abort", s.finished_abort},
                                                                      {"finished_error", s.finished_error},
                                                                      {"trace_steps", s.trace_steps},
                                                                      {"trace_steps_dropped", s.trace_steps_dropped}})
      out[name] = value;
    return out;
  }

  [[nodiscard]] nb::dict save_journal() const {
    const auto saved = answer_to<SavedJournal>([&](auto answer) { serving_->engine->save_journal(std::move(answer)); });
    nb::dict out;
    out["path"] = saved.path;
    out["bytes"] = saved.num_bytes;
    out["steps"] = saved.num_steps;
    out["seconds"] = saved.covered_s;
    return out;
  }

  void load_adapter(const std::string& name, const std::string& path, bool replace) const {
    auto loaded = [&] {
      const nb::gil_scoped_release released;
      return serving_->engine->load_adapter(name, path, replace);
    }();
    (void)made_or_raise(std::move(loaded));
  }
  void unload_adapter(const std::string& name) const {
    auto unloaded = [&]() -> Result<bool> {
      const nb::gil_scoped_release released;
      auto done = serving_->engine->unload_adapter(name);
      if (!done) return std::unexpected(std::move(done.error()));
      return true;
    }();
    (void)made_or_raise(std::move(unloaded));
  }
  [[nodiscard]] nb::list adapters() const {
    nb::list all;
    for (const AdapterInfo& adapter : serving_->engine->adapters()) {
      nb::dict out;
      out["name"] = adapter.name;
      out["path"] = adapter.path;
      out["digest"] = adapter.digest;
      out["rank"] = adapter.rank;
      out["bytes"] = adapter.bytes;
      out["resident"] = adapter.is_resident;
      all.append(out);
    }
    return all;
  }

  [[nodiscard]] nb::dict probe(Tokens prompt, std::string cache_salt, std::string adapter) const {
    EngineRequest request;
    request.prompt = std::move(prompt);
    request.cache_salt = std::move(cache_salt);
    request.adapter = std::move(adapter);
    const auto probe = answer_to<EngineProbe>([&](auto answer) { serving_->engine->probe(std::move(request), std::move(answer)); });
    const std::vector<KvTierStats> tiers = serving_->engine->stats().kv_tiers;
    nb::dict found, out;
    found["memory"] = probe.cache.num_local_tokens;
    for (const TierMatch& match : probe.cache.external)
      found[match.tier < tiers.size() ? tiers[match.tier].name.c_str() : "connector"] = match.num_tokens;
    out["prompt_tokens"] = probe.cache.num_tokens;
    out["found"] = found;
    out["missed_tokens"] = probe.cache.num_missed_tokens();
    out["tiers_known"] = probe.cache.is_external_known;
    out["wait_s"] = probe.wait_s;
    out["load_s"] = probe.load_s;
    out["compute_s"] = probe.compute_s;
    return out;
  }

  [[nodiscard]] nb::list cache_curve() const {
    const auto known = answer_to<EngineCurve>([&](auto answer) { serving_->engine->cache_curve({}, std::move(answer)); });
    nb::list rows;
    for (const CurveRow& row : curve_rows(known.curve, known.curve.all, known.costs)) {
      nb::dict out;
      out["label"] = row.label;
      out["bytes"] = row.num_bytes;
      out["blocks"] = row.num_blocks;
      out["hit_rate"] = row.hit_rate;
      out["saved_prefill_tokens_per_s"] = row.saved_tokens_per_s;
      rows.append(out);
    }
    return rows;
  }

  std::uint32_t close(double timeout_s) {
    const nb::gil_scoped_release released;
    return serving_->engine->stop(timeout_s);
  }

 private:
  std::shared_ptr<Serving> serving_;
};

void bind_answers(nb::module_& m) {
  nb::class_<Output> output(m, "Output", "Part of an answer, as a stream gives it, or all of it.");
  output.def_ro("tokens", &Output::tokens, "Token ids.");
  output.def_ro("text", &Output::text, "Whole characters only, without control tokens and without the stop id that ended it.");
  output.def_ro("logprobs", &Output::logprobs,
                "Per token [(token, log probability, rank), ...], the token's own first; None: not asked for.");
  output.def_ro("prompt_logprobs", &Output::prompt_logprobs, "The same per token of the prompt but the first.");
  output.def_prop_ro(
      "routed_experts", &Output::routed_experts,
      "A memoryview of the experts of each token that was computed, [token][layer][expert], as NumPy takes it: with the first "
      "part those of the prompt, then of the tokens before the part's; None: not asked for.");
  output.def_ro("finish_reason", &Output::finish_reason, "'stop', 'length', 'repetition' or 'abort'; None: the answer goes on.");
  output.def_ro("num_cached_tokens", &Output::num_cached_tokens, "Tokens of the prompt that the prefix cache had.");
  nb::class_<Generation> generation(m, "Generation", "An answer under way: an iterator of Output. Dropped before its end, it is aborted.");
  generation.def("__iter__", [](nb::handle self) { return nb::borrow(self); });
  generation.def("__next__", &Generation::next, "What has come since the last; waits for it.");
  generation.def("rest", &Generation::rest, "Waits for the end, and returns all that has not been taken yet as one Output.");
  generation.def("abort", &Generation::abort, "Ends it; what was computed by then still comes.");
}

}  // namespace

void bind_engine(nb::module_& m) {
  bind_answers(m);
  nb::class_<PyEngine> c(m, "NativeEngine", "What quire.Engine is made of.");
  c.def(nb::init<const std::string&, EngineConfig>(), nb::arg("model"), nb::arg("config"));
  c.def(
      "submit",
      [](PyEngine& self, Tokens prompt, const SamplingParams& sampling, std::int64_t priority, std::string cache_salt, std::string job,
         bool is_last_step, std::string tool, std::string adapter) {
        return self.submit(std::move(prompt), sampling, priority, std::move(cache_salt),
                           {.job = std::move(job), .is_last_step = is_last_step, .tool = std::move(tool)}, std::move(adapter));
      },
      nb::arg("prompt"), nb::arg("sampling"), nb::kw_only(), nb::arg("priority") = 0, nb::arg("cache_salt") = "", nb::arg("job") = "",
      nb::arg("is_last_step") = false, nb::arg("tool") = "", nb::arg("adapter") = "");
  c.def("encode", &PyEngine::encode, nb::arg("text"));
  c.def("decode", &PyEngine::decode, nb::arg("tokens"));
  c.def("encode_chat", &PyEngine::encode_chat, nb::arg("messages"));
  c.def("stats", &PyEngine::stats);
  c.def("save_journal", &PyEngine::save_journal);
  c.def("load_adapter", &PyEngine::load_adapter, nb::arg("name"), nb::arg("path"), nb::arg("replace") = false);
  c.def("unload_adapter", &PyEngine::unload_adapter, nb::arg("name"));
  c.def("adapters", &PyEngine::adapters);
  c.def("probe", &PyEngine::probe, nb::arg("prompt"), nb::arg("cache_salt") = "", nb::arg("adapter") = "");
  c.def("cache_curve", &PyEngine::cache_curve);
  c.def("close", &PyEngine::close, nb::arg("timeout"));
}

}  // namespace quire::python

NB_MODULE(_engine, m) {
  nanobind::set_leak_warnings(false);  // an answer may be held until the interpreter ends
  m.doc() = "The engine: a model, its KV cache and its scheduler, stepped by a thread of its own.";
  quire::python::bind_engine_config(m);
  quire::python::bind_sampling(m);
  quire::python::bind_engine(m);
}
