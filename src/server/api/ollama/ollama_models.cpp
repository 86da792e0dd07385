// Describes the model to Ollama's clients. All values come from the model's files and the options. Called on the server's thread, or in the
// job pool where a body is read.
#include "server/api/ollama/ollama_models.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/json_writer.h"
#include "server/request/object_reader.h"

namespace quire {

namespace {

constexpr std::string_view kLatest = ":latest";

// The time after which Ollama unloads a model. This server never does, so the time is far away.
constexpr std::time_t kNeverS = std::time_t{100} * 365 * 24 * 3600;

std::string with_tag(const std::string& name) {
  const std::size_t base = name.rfind('/') == std::string::npos ? 0 : name.rfind('/');
  return name.find(':', base) == std::string::npos ? name + std::string(kLatest) : name;
}

std::string rfc3339(std::time_t time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time));
}

// Returns a number of parameters as Ollama writes it: "134.52M", "8.0B", "7B".
std::string short_count(std::uint64_t count) {
  constexpr std::pair<std::uint64_t, const char*> kUnits[] = {{1'000'000'000, "B"}, {1'000'000, "M"}, {1000, "K"}};
  for (const auto& [unit, name] : kUnits) {
    if (count < unit) continue;
    if (count % unit == 0) return fmt::format("{}{}", count / unit, name);
    return fmt::format("{:.{}f}{}", static_cast<double>(count) / static_cast<double>(unit), unit == 1'000'000 ? 2 : 1, name);
  }
  return std::to_string(count);
}

// Returns the most frequent format of the weights that is not f32, which norms have: "Q4_1" from "Q4_1 210, F32 61".
std::string weight_format(std::string_view types) {
  std::string first;
  while (!types.empty()) {
    const std::size_t end = std::min(types.find(", "), types.size());
    const std::string_view type = types.substr(0, std::min(types.find(' '), end));
    if (first.empty()) first = type;
    if (type != "F32") return std::string(type);
    types.remove_prefix(std::min(end + 2, types.size()));
  }
  return first;
}

// Returns a digest of the model's properties. It identifies the model, but is not the digest of a file, which takes long to compute.
std::string model_digest(const ModelInfo& info) {
  const std::string text = fmt::format("{} {} {} {} {} {}", info.name, info.architecture, info.weight_types, info.num_parameters,
                                       info.weight_bytes, info.vocab_size);
  return to_hex(Sha256::of(std::as_bytes(std::span(text))));
}

void write_details(JsonWriter& json, const Engine& engine, std::string_view parent) {
  const ModelInfo& info = engine.model();
  json.begin_object("details").field("parent_model", parent);
  json.field("format", std::string_view(engine.options().model).ends_with(".gguf") ? "gguf" : "safetensors");
  json.field("family", info.architecture).begin_array("families").value(info.architecture).end_array();
  json.field("parameter_size", short_count(info.num_parameters)).field("quantization_level", weight_format(info.weight_types)).end_object();
}

struct Entry {
  std::string name, digest, parent;
  std::uint64_t bytes = 0;
};

// Returns the entries of all names of the model, and of the adapters.
std::vector<Entry> entries_of(const OllamaHost& host) {
  const Engine& engine = host.engine;
  std::vector<Entry> entries;
  for (const std::string& name : host.model.names())
    entries.push_back({with_tag(name), model_digest(engine.model()), "", engine.model().weight_bytes});
  for (const AdapterInfo& adapter : engine.adapters())
    entries.push_back({with_tag(adapter.name), adapter.digest, with_tag(host.model.name()), adapter.bytes});
  return entries;
}

std::vector<std::string_view> capabilities_of(const ServedModel& model, const ModelInfo& info) {
  if (!info.has_output) return {"embedding"};
  std::vector<std::string_view> out = {"completion"};
  if (model.call_format().shows_tools) out.emplace_back("tools");
  if (!model.call_format().think_open.empty()) out.emplace_back("thinking");
  if (info.pictures.any()) out.emplace_back("vision");
  if (model.supports_infill()) out.emplace_back("insert");
  return out;
}

// Returns the options that differ from the API's defaults, one per line: "temperature 0.6".
std::string parameters_of(const OllamaHost& host) {
  const GenerationDefaults& defaults = host.options.generation_defaults;
  std::string out;
  const auto add = [&out](std::string_view name, const auto& value) {
    if (value) out += fmt::format("{:<30} {}\n", name, *value);
  };
  add("temperature", defaults.temperature);
  add("top_p", defaults.top_p);
  add("top_k", defaults.top_k);
  add("min_p", defaults.min_p);
  add("repeat_penalty", defaults.repetition_penalty);
  add("num_predict", defaults.max_tokens);
  add("num_ctx", std::optional(host.model.max_model_len()));
  out.pop_back();
  return out;
}

// Writes the properties with the keys of GGUF files. The context length is the one that the server serves.
void write_model_info(JsonWriter& json, const ServedModel& model, const ModelInfo& info) {
  const auto key = [&info](std::string_view name) { return fmt::format("{}.{}", info.architecture, name); };
  json.begin_object("model_info").field("general.architecture", info.architecture);
  json.field("general.basename", info.name).field("general.parameter_count", info.num_parameters);
  json.field(key("context_length"), model.max_model_len()).field(key("embedding_length"), info.hidden_size);
  json.field(key("block_count"), info.num_layers).field(key("attention.head_count"), info.num_heads);
  json.field(key("attention.head_count_kv"), info.num_kv_heads).field(key("attention.key_length"), info.head_dim);
  if (info.num_experts > 0) json.field(key("expert_count"), info.num_experts).field(key("expert_used_count"), info.experts_per_token);
  json.field(key("vocab_size"), info.vocab_size);
  json.field("tokenizer.ggml.bos_token_id", model.tokenizer().bos()).field("tokenizer.ggml.eos_token_id", model.tokenizer().eos());
  json.end_object();
}

}  // namespace

Result<std::string> find_ollama_model(const ServedModel& model, const std::string& name) {
  if (model.adapter_of(name)) return name;
  if (std::string base = name; base.ends_with(kLatest)) {
    base.resize(base.size() - kLatest.size());
    if (!base.empty() && model.adapter_of(base)) return base;
  }
  return fail(ErrorCode::not_found, "", fmt::format("model '{}' not found", name.substr(0, 200)),
              fmt::format("use '{}', or another name from /api/tags", model.name()));
}

OllamaModel ollama_model(const ServedModel& model) {
  return {.has_template = !model.chat_template().empty(),
          .supports_images = model.image_reading().supports_images,
          .thinks = !model.call_format().think_open.empty(),
          .reads_effort = model.call_format().reads_effort,
          .context = model.max_model_len()};
}

std::string ollama_tags(const OllamaHost& host) {
  return json_object([&](JsonWriter& json) {
    json.begin_array("models");
    for (const Entry& entry : entries_of(host)) {
      json.begin_object().field("name", entry.name).field("model", entry.name).field("modified_at", rfc3339(host.started_s));
      json.field("size", entry.bytes).field("digest", entry.digest);
      write_details(json, host.engine, entry.parent);
      json.end_object();
    }
    json.end_array();
  });
}

std::string ollama_running(const OllamaHost& host) {
  return json_object([&](JsonWriter& json) {
    json.begin_array("models");
    for (const Entry& entry : entries_of(host)) {
      json.begin_object().field("name", entry.name).field("model", entry.name).field("size", entry.bytes).field("digest", entry.digest);
      write_details(json, host.engine, entry.parent);
      json.field("expires_at", rfc3339(host.started_s + kNeverS)).field("size_vram", 0);
      json.field("context_length", host.model.max_model_len()).end_object();
    }
    json.end_array();
  });
}

Result<std::string> ollama_show(std::string body, const OllamaHost& host) {
  auto object = parse_object(std::exchange(body, {}));
  if (!object) return std::unexpected(std::move(object.error()));
  ObjectReader reader(*object);
  std::string name = reader.text("model");
  if (std::string older = reader.text("name"); name.empty()) name = std::move(older);
  if (name.empty()) reader.reject("model", "is missing", "use a model from /api/tags");
  (void)reader.boolean("verbose", false);  // long lists, such as the vocabulary, are never part of the answer
  // The Go client sends empty values of these fields.
  for (const char* other : {"system", "template"})
    if (!reader.text(other).empty())
      reader.reject(other, "is not supported", "leave it out: the model stays the same", ErrorCode::unsupported);
  if (const auto* options = reader.find("options"); options != nullptr && *options != boost::json::object())
    reader.reject("options", "are not supported", "leave them out: the model stays the same", ErrorCode::unsupported);
  if (const auto done = reader.finish(); !done) return std::unexpected(done.error());
  const auto found = find_ollama_model(host.model, name);
  if (!found) return std::unexpected(found.error());
  const ModelInfo& info = host.engine.model();
  const std::string parameters = parameters_of(host);
  return json_object([&](JsonWriter& json) {
    json.field("license", "").field("modelfile", fmt::format("FROM {}\n", *found)).field("parameters", parameters);
    json.field("template", host.model.chat_template());
    write_details(json, host.engine, "");
    write_model_info(json, host.model, info);
    json.field("capabilities", capabilities_of(host.model, info)).field("modified_at", rfc3339(host.started_s));
  });
}

}  // namespace quire
