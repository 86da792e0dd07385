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
#include "text/tool_calls/call_format.h"

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

void write_details(JsonWriter& json, const OllamaDetails& details, std::string_view parent) {
  json.begin_object("details").field("parent_model", parent).field("format", details.format);
  json.field("family", details.architecture).begin_array("families").value(details.architecture).end_array();
  json.field("parameter_size", details.parameter_size).field("quantization_level", details.quantization).end_object();
}

// Returns the entries of all names of the model, and of the adapters.
std::vector<OllamaEntry> entries_of(const OllamaHost& host) {
  const Engine& engine = host.engine;
  const OllamaDetails details = ollama_details(engine.model(), engine.options().model);
  std::vector<OllamaEntry> entries;
  const auto add = [&](const std::string& name, std::string digest, std::string parent, std::uint64_t bytes) {
    entries.push_back({.name = name,
                       .digest = std::move(digest),
                       .parent = std::move(parent),
                       .details = details,
                       .bytes = bytes,
                       .modified_s = host.started_s,
                       .expires_s = host.started_s + kNeverS,
                       .context_length = host.model.max_model_len()});
  };
  for (const std::string& name : host.model.names()) add(name, details.digest, "", engine.model().weight_bytes);
  for (const AdapterInfo& adapter : engine.adapters()) add(adapter.name, adapter.digest, with_tag(host.model.name()), adapter.bytes);
  return entries;
}

std::vector<std::string_view> capabilities_of(const CallFormat& format, bool supports_infill, const ModelInfo& info) {
  if (!info.has_output) return {"embedding"};
  std::vector<std::string_view> out = {"completion"};
  if (format.shows_tools) out.emplace_back("tools");
  if (!format.think_open.empty()) out.emplace_back("thinking");
  if (info.pictures.any()) out.emplace_back("vision");
  if (supports_infill) out.emplace_back("insert");
  return out;
}

// Returns the options that differ from the API's defaults, one per line: "temperature 0.6".
std::string parameters_of(const GenerationDefaults& defaults, std::uint32_t context_length) {
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
  add("num_ctx", std::optional(context_length));
  out.pop_back();
  return out;
}

// Writes the properties with the keys of GGUF files. The context length is the one that the server serves.
void write_model_info(JsonWriter& json, const ModelInfo& info, std::uint32_t context_length) {
  const auto key = [&info](std::string_view name) { return fmt::format("{}.{}", info.architecture, name); };
  json.begin_object("model_info").field("general.architecture", info.architecture);
  json.field("general.basename", info.name).field("general.parameter_count", info.num_parameters);
  json.field(key("context_length"), context_length).field(key("embedding_length"), info.hidden_size);
  json.field(key("block_count"), info.num_layers).field(key("attention.head_count"), info.num_heads);
  json.field(key("attention.head_count_kv"), info.num_kv_heads).field(key("attention.key_length"), info.head_dim);
  if (info.num_experts > 0) json.field(key("expert_count"), info.num_experts).field(key("expert_used_count"), info.experts_per_token);
  json.field(key("vocab_size"), info.vocab_size);
  json.field("tokenizer.ggml.bos_token_id", info.tokenizer->bos).field("tokenizer.ggml.eos_token_id", info.tokenizer->eos);
  json.end_object();
}

// The parts of the answer of POST /api/show that do not follow from the model's files alone.
struct Shown {
  std::string_view name, path, chat_template;
  std::string parameters;
  std::vector<std::string_view> capabilities;
  std::uint32_t context_length = 0;
  std::int64_t modified_s = 0;
};

std::string show_body(const ModelInfo& info, const Shown& shown) {
  return json_object([&](JsonWriter& json) {
    json.field("license", "").field("modelfile", fmt::format("FROM {}\n", shown.name)).field("parameters", shown.parameters);
    json.field("template", shown.chat_template);
    write_details(json, ollama_details(info, shown.path), "");
    write_model_info(json, info, shown.context_length);
    json.field("capabilities", shown.capabilities).field("modified_at", rfc3339(shown.modified_s));
  });
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

OllamaDetails ollama_details(const ModelInfo& info, std::string_view path) {
  return {.format = path.ends_with(".gguf") ? "gguf" : "safetensors",
          .architecture = info.architecture,
          .parameter_size = short_count(info.num_parameters),
          .quantization = weight_format(info.weight_types),
          .digest = model_digest(info)};
}

std::string ollama_list(const std::vector<OllamaEntry>& entries) {
  return json_object([&](JsonWriter& json) {
    json.begin_array("models");
    for (const OllamaEntry& entry : entries) {
      const std::string name = with_tag(entry.name);
      json.begin_object().field("name", name).field("model", name).field("modified_at", rfc3339(entry.modified_s));
      json.field("size", entry.bytes).field("digest", entry.digest);
      write_details(json, entry.details, entry.parent);
      json.end_object();
    }
    json.end_array();
  });
}

std::string ollama_running_list(const std::vector<OllamaEntry>& entries) {
  return json_object([&](JsonWriter& json) {
    json.begin_array("models");
    for (const OllamaEntry& entry : entries) {
      const std::string name = with_tag(entry.name);
      json.begin_object().field("name", name).field("model", name).field("size", entry.bytes).field("digest", entry.digest);
      write_details(json, entry.details, entry.parent);
      json.field("expires_at", rfc3339(entry.expires_s == 0 ? entry.modified_s + kNeverS : entry.expires_s)).field("size_vram", 0);
      json.field("context_length", entry.context_length).end_object();
    }
    json.end_array();
  });
}

std::string ollama_tags(const OllamaHost& host) {
  return ollama_list(entries_of(host));
}

std::string ollama_running(const OllamaHost& host) {
  return ollama_running_list(entries_of(host));
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
  return show_body(info, {.name = *found,
                          .path = host.engine.options().model,
                          .chat_template = host.model.chat_template(),
                          .parameters = parameters_of(host.options.generation_defaults, host.model.max_model_len()),
                          .capabilities = capabilities_of(host.model.call_format(), host.model.supports_infill(), info),
                          .context_length = host.model.max_model_len(),
                          .modified_s = host.started_s});
}

std::string ollama_show_unloaded(const ModelInfo& info, const std::string& name, const std::string& path, std::uint32_t context_length) {
  const std::string& chat_template = info.tokenizer->chat_template;
  return show_body(info, {.name = name,
                          .path = path,
                          .chat_template = chat_template,
                          .parameters = parameters_of({}, context_length),
                          .capabilities = capabilities_of(detect_call_format(chat_template), false, info),
                          .context_length = context_length,
                          .modified_s = std::time(nullptr)});
}

}  // namespace quire
