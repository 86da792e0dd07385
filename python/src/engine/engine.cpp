// Binds quire._engine.NativeEngine: the public engine (quire/engine.h) for Python. Every call that waits releases the GIL.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <future>
#include <string_view>
#include <utility>

#include "engine/generation.h"
#include "engine/parts.h"
#include "quire/engine_metric_table.h"
#include "quire/engine_option_table.h"

namespace quire::python {
namespace {

using Tokens = std::vector<TokenId>;

template <class T>
T engine_value_or_raise(Result<T> result) {
  if (result) return std::move(*result);
  Error error = result.error();
  if (const std::string_view flag = flag_of(error.field); !flag.empty())
    error = {error.code, keyword_of(flag), with_keywords(error.message), with_keywords(error.remedy)};
  const auto is_one_of = [&](auto... codes) { return ((error.code == codes) || ...); };
  PyObject* const kind = is_one_of(ErrorCode::not_found)                                                      ? PyExc_FileNotFoundError
                         : is_one_of(ErrorCode::io, ErrorCode::corrupt)                                       ? PyExc_OSError
                         : is_one_of(ErrorCode::overloaded, ErrorCode::shutting_down, ErrorCode::unavailable) ? PyExc_RuntimeError
                                                                                                              : nullptr;
  if (kind == nullptr) raise(error);
  PyErr_SetString(kind, error.to_string().c_str());
  throw nb::python_error();
}

// Waits, without the GIL, for a result from the thread of the engine or of the journal.
template <class T, class Ask>
T wait_for_result(const Ask& ask) {
  return engine_value_or_raise([&] {
    const nb::gil_scoped_release released;
    std::promise<Result<T>> promise;
    ask([&promise](Result<T> answer) { promise.set_value(std::move(answer)); });
    return promise.get_future().get();
  }());
}

class PyEngine {
 public:
  PyEngine(const std::string& model, EngineConfig config) : shared_(std::make_shared<SharedEngine>()) {
    config.engine.model = model;
    Result<std::unique_ptr<Engine>> engine = [&] {
      const nb::gil_scoped_release released;
      EngineOptions options = config.engine;
      if (!config.enable_lora) options.adapters.max_loras = 0;
      for (const auto& [name, path] : config.lora_modules) options.adapters.modules.push_back({.name = name, .path = path});
      return EngineBuilder(options).kv_dram(config.kv_dram).kv_disk(config.kv_disk).kv_remote(config.kv_remote).build();
    }();
    shared_->engine = engine_value_or_raise(std::move(engine));
    const TokenizerSpec& spec = *shared_->engine->model().tokenizer;
    shared_->tokenizer = engine_value_or_raise(Tokenizer::create(spec));
    if (!spec.chat_template.empty())
      if (auto chat = ChatTemplate::parse(spec.chat_template)) shared_->chat = std::move(*chat);
  }

  std::unique_ptr<Generation> submit(Tokens prompt, const SamplingParams& sampling, std::int64_t priority, std::string cache_salt,
                                     RequestTags tags, std::string adapter) {
    std::erase_if(shared_->mailboxes, [](const auto& mailbox) { return mailbox->is_finished(); });
    auto mailbox = std::make_shared<Mailbox>();
    EngineRequest request{.prompt = std::move(prompt),
                          .sampling = sampling,
                          .cache_salt = std::move(cache_salt),
                          .priority = priority,
                          .tags = std::move(tags)};
    request.adapter = std::move(adapter);
    Result<RequestId> id = [&] {
      const nb::gil_scoped_release released;
      return shared_->engine->submit(std::move(request), *mailbox);
    }();
    const RequestId known = engine_value_or_raise(std::move(id));
    shared_->mailboxes.push_back(mailbox);
    return std::make_unique<Generation>(shared_, std::move(mailbox), known);
  }

  [[nodiscard]] Tokens encode(const std::string& text) const { return engine_value_or_raise(shared_->tokenizer->encode(text)); }
  [[nodiscard]] std::string decode(const Tokens& tokens) const { return shared_->tokenizer->decode(tokens); }

  [[nodiscard]] Tokens encode_chat(const std::vector<std::pair<std::string, std::string>>& messages) const {
    const auto& chat = shared_->chat;
    if (!chat) throw nb::value_error("messages: this model has no chat template that can be parsed; pass text or token ids");
    std::vector<ChatMessage> turns;
    turns.reserve(messages.size());
    for (const auto& [role, content] : messages) turns.push_back({role, content});
    const std::string text = engine_value_or_raise(chat->render(turns, *shared_->tokenizer));
    return engine_value_or_raise(shared_->tokenizer->encode(text, {.add_special = false, .parse_special = true}));
  }

  [[nodiscard]] nb::dict stats() const {
    const EngineStats stats = shared_->engine->stats();
    nb::dict out;
    const auto add = [&](const auto& metrics) {
      for (const Metric<EngineStats>& metric : metrics)
        if (*metric.more.python != '\0') out[metric.more.python] = std::get<std::uint64_t>(metric.value(stats));
    };
    add(kEngineMetrics);
    add(kRecordMetrics);
    return out;
  }

  [[nodiscard]] nb::dict save_journal() const {
    const auto saved = wait_for_result<SavedJournal>([&](auto answer) { shared_->engine->save_journal(std::move(answer)); });
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
      return shared_->engine->load_adapter(name, path, replace);
    }();
    (void)engine_value_or_raise(std::move(loaded));
  }
  void unload_adapter(const std::string& name) const {
    auto unloaded = [&]() -> Result<bool> {
      const nb::gil_scoped_release released;
      auto done = shared_->engine->unload_adapter(name);
      if (!done) return std::unexpected(std::move(done.error()));
      return true;
    }();
    (void)engine_value_or_raise(std::move(unloaded));
  }
  [[nodiscard]] nb::list adapters() const {
    nb::list all;
    for (const AdapterInfo& adapter : shared_->engine->adapters()) {
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
    const auto probe = wait_for_result<EngineProbe>([&](auto answer) { shared_->engine->probe(std::move(request), std::move(answer)); });
    const std::vector<KvTierStats> tiers = shared_->engine->stats().kv_tiers;
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
    const auto known = wait_for_result<EngineHitRateCurve>([&](auto answer) { shared_->engine->cache_curve({}, std::move(answer)); });
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
    return shared_->engine->stop(timeout_s);
  }

 private:
  std::shared_ptr<SharedEngine> shared_;
};

void bind_answers(nb::module_& m) {
  nb::class_<Output> output(m, "Output", "A part of an answer, or a whole answer.");
  output.def_ro("tokens", &Output::tokens, "Token ids.");
  output.def_ro("text", &Output::text, "Text of the tokens: whole characters, without control tokens and without the stop token.");
  output.def_ro("logprobs", &Output::logprobs,
                "For each token [(token, log probability, rank), ...], the sampled token first; None: not requested.");
  output.def_ro("prompt_logprobs", &Output::prompt_logprobs, "Like logprobs, for each prompt token except the first.");
  output.def_prop_ro("routed_experts", &Output::routed_experts,
                     "The experts of each computed token, as a memoryview [token][layer][expert] of uint16 that NumPy reads without a\n"
                     "copy; None: not requested. The first part also contains the tokens of the prompt. The experts of an output token\n"
                     "come with the next token.");
  output.def_ro("finish_reason", &Output::finish_reason, "'stop', 'length', 'repetition' or 'abort'; None: the answer continues.");
  output.def_ro("num_cached_tokens", &Output::num_cached_tokens, "Number of prompt tokens found in the prefix cache.");
  nb::class_<Generation> generation(
      m, "Generation", "An answer in progress: an iterator over its parts (Output). Deleting it before its end aborts the answer.");
  generation.def("__iter__", [](nb::handle self) { return nb::borrow(self); });
  generation.def("__next__", &Generation::next, "Waits for the next part and returns it. RuntimeError if the answer failed.");
  generation.def("rest", &Generation::rest, "Waits for the end and returns the rest of the answer as one Output.");
  generation.def("abort", &Generation::abort, "Aborts the answer. Output that was computed before is still delivered.");
}

}  // namespace

void bind_engine(nb::module_& m) {
  bind_answers(m);
  nb::class_<PyEngine> c(m, "NativeEngine", "The native part of quire.Engine.");
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
  nanobind::set_leak_warnings(false);  // an answer may exist until the interpreter ends
  m.doc() = "The engine: a model, its KV cache and its scheduler, stepped by a separate thread.";
  quire::python::bind_engine_config(m);
  quire::python::bind_sampling(m);
  quire::python::bind_engine(m);
}
