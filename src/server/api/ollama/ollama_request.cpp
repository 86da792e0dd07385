// Translates the bodies of Ollama's API. The result is read like a body of OpenAI's API, so all APIs have the same reader, limits and path
// to the engine. Runs where the body is read, on the server's thread or in the job pool. Fields of `options` may also be in the body
// itself, and the other sampling fields of this server may be in either.
#include "server/api/ollama/ollama_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <charconv>
#include <limits>
#include <utility>

#include "server/api/ollama/closed_schema.h"
#include "server/api/ollama/ollama_messages.h"
#include "server/request/field_names.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view kOptions = "options.";

// The penalties of a body, which `repeat_last_n` limits to a number of last tokens.
struct Penalties {
  std::optional<double> repeat;
  std::optional<std::int64_t> last_n;
  std::string last_n_field;  // the client's name
};

// Reads the options that have another name, or other values, than in a chat. `path` precedes the names in errors.
void read_options(ObjectReader& reader, std::string_view path, const OllamaModel& model, json::object& body, Penalties& penalties) {
  read_num_ctx(reader, model.context);
  // A negative seed asks for a random one, which is the default.
  const auto seed = reader.integer("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  if (seed && *seed >= 0) body.emplace("seed", *seed);
  if (reader.find("repeat_penalty") != nullptr) penalties.repeat = reader.number("repeat_penalty", 1.0);
  if (const auto last = reader.integer("repeat_last_n", -1, kMaxInt)) {
    penalties.last_n = last;
    penalties.last_n_field = std::string(path) + "repeat_last_n";
  }
  reader.pass_on(body);
}

bool is_on(const json::object& body, std::string_view penalty) {
  const json::value* value = body.if_contains(penalty);
  return value != nullptr && !same_value(*value, 0);
}

// Applies the penalties. They count the whole text, so a window of some last tokens is refused unless no penalty is set. A window of 0
// tokens turns penalties off.
void apply_penalties(ObjectReader& reader, const Penalties& penalties, json::object& body) {
  if (penalties.repeat && !body.emplace("repetition_penalty", *penalties.repeat).second)
    return reader.reject(Error{ErrorCode::invalid_argument, "repetition_penalty", "conflicts with repeat_penalty, which means the same",
                               "send only one of them"});
  if (!penalties.last_n || *penalties.last_n == -1) return;
  if (*penalties.last_n == 0) {
    for (const char* off : {"presence_penalty", "frequency_penalty"}) body.insert_or_assign(off, 0);
    body.insert_or_assign("repetition_penalty", 1);
    return;
  }
  const bool repeats = penalties.repeat.value_or(1.0) != 1.0;
  if (!repeats && !is_on(body, "presence_penalty") && !is_on(body, "frequency_penalty")) return;
  reader.reject(Error{ErrorCode::unsupported, penalties.last_n_field,
                      fmt::format("is {}, but penalties count the whole text", *penalties.last_n),
                      "send -1, or leave it out; 0 turns penalties off"});
}

// Reads the object `options` of the body `sent`.
void read_options_object(ObjectReader& reader, const json::object& sent, FieldApi api, const OllamaModel& model,
                         std::vector<std::string>& ignored, OllamaCall& call, Penalties& penalties) {
  json::value* options = reader.find("options");
  if (options == nullptr) return;
  if (!options->is_object()) return reader.reject("options", "must be an object, not " + describe(*options), R"(send {"temperature": 0})");
  json::object& fields = options->get_object();
  for (const auto& [name, value] : fields) {
    const json::value* twice = sent.if_contains(name);
    if (twice != nullptr && !twice->is_null() && !value.is_null() && !same_value(*twice, value))
      return reader.reject(name, "differs from the value in options", "send it only in options");
    call.option_names.emplace_back(name);
  }
  ObjectReader inner(fields, std::string(kOptions), api);
  read_options(inner, kOptions, model, call.body, penalties);
  if (const auto done = inner.finish(ignored); !done) reader.reject(done.error());
}

// Reads `think`: a boolean, or a level.
void read_think(ObjectReader& reader, const OllamaModel& model, OllamaCall& call) {
  const json::value* think = reader.find("think");
  if (think == nullptr || (think->is_string() && think->get_string().empty())) return;
  static constexpr std::string_view kLevels[] = {"low", "medium", "high", "max"};
  const bool is_level = think->is_string() && std::ranges::find(kLevels, std::string_view(think->get_string())) != std::end(kLevels);
  if (!think->is_bool() && !is_level)
    return reader.reject("think", "is " + describe(*think), R"(send true, false, "low", "medium", "high" or "max")");
  const bool is_on = is_level || think->get_bool();
  if (is_on && call.api == Api::completion)
    return reader.reject("think", "is not supported for a prompt that no template renders", "leave it out", ErrorCode::unsupported);
  if (is_on && !model.thinks)
    return reader.reject(
        Error{ErrorCode::unsupported, "", fmt::format("\"{}\" does not support thinking", call.model.substr(0, 200)), "leave out think"});
  if (call.api == Api::completion) return;
  call.body.insert_or_assign("enable_thinking", is_on);
  if (!is_level) return;
  if (model.reads_effort)
    call.body.insert_or_assign("reasoning_effort", *think);
  else
    reader.leave_out("think:" + std::string(think->get_string()));
}

// Reads the fields of a prompt. A prompt that the template renders becomes a chat, and any other prompt a completion.
void read_prompt(ObjectReader& reader, const OllamaModel& model, OllamaCall& call) {
  std::string prompt = reader.text("prompt"), suffix = reader.text("suffix"), system = reader.text("system");
  const bool is_raw = reader.boolean("raw", false);
  const json::value* images = reader.find("images");
  const bool has_images = images != nullptr && !(images->is_array() && images->get_array().empty());
  call.is_load = prompt.empty() && suffix.empty() && !has_images;
  const bool is_bare = !model.has_template && system.empty() && !has_images;
  if (!is_raw && suffix.empty() && !is_bare) {
    json::array messages;
    if (!system.empty()) messages.push_back(json::object{{"role", "system"}, {"content", std::move(system)}});
    messages.push_back(
        json::object{{"role", "user"},
                     {"content", content_with_images(reader, images, "images", json::string(std::move(prompt)), model.supports_images)}});
    call.body.emplace("messages", std::move(messages));
    return;
  }
  call.api = Api::completion;
  const char* const why = is_raw ? "cannot be combined with raw" : "cannot be combined with suffix";
  if (!system.empty()) reader.reject("system", why, "put its text into the prompt");
  if (has_images) reader.reject("images", why, "leave them out");
  call.body.emplace("prompt", std::move(prompt));
  if (!suffix.empty()) call.body.emplace("suffix", std::move(suffix));
}

// Reads logprobs and top_logprobs, which are one number in a completion.
void read_logprobs(ObjectReader& reader, OllamaCall& call) {
  const bool wanted = reader.boolean("logprobs", false);
  const auto count = reader.integer("top_logprobs", 0, 20);
  if (count.value_or(0) > 0 && !wanted) return reader.reject("top_logprobs", "requires logprobs", "send \"logprobs\": true as well");
  if (!wanted) return;
  if (call.api == Api::completion) {
    call.body.emplace("logprobs", count.value_or(0));
    return;
  }
  call.body.emplace("logprobs", true);
  call.body.emplace("top_logprobs", count.value_or(0));
}

// Reads the messages. If the last one is an answer, the model continues it, as with Ollama's templates.
void read_chat(ObjectReader& reader, const OllamaModel& model, std::vector<std::string>& ignored, OllamaCall& call) {
  json::array messages = read_ollama_messages(reader, model.supports_images, ignored);
  call.is_load = messages.empty();
  if (!messages.empty()) {
    const json::object& last = messages.back().get_object();
    if (last.at("role") == "assistant" && !last.contains("tool_calls")) {
      call.body.emplace("add_generation_prompt", false);
      call.body.emplace("continue_final_message", true);
    }
  }
  call.body.emplace("messages", std::move(messages));
}

// Names of options that have another name in a chat.
constexpr FieldName kOptionNames[] = {{"repetition_penalty", "repeat_penalty"}, {"max_tokens", "num_predict"}};

}  // namespace

std::optional<double> ollama_seconds(std::string_view text) {
  const double sign = text.starts_with('-') ? -1.0 : 1.0;
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return 0.0;
  constexpr std::pair<std::string_view, double> kUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3},
                                                            {"s", 1.0},   {"m", 60.0},  {"h", 3600.0}};
  double seconds = 0.0;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::size_t unit = std::min(text.find_first_of("0123456789.", digits), text.size());
    const auto* const known = std::ranges::find(kUnits, text.substr(digits, unit - digits), &std::pair<std::string_view, double>::first);
    double number = 0.0;
    const auto parsed = std::from_chars(text.data(), text.data() + digits, number);
    if (known == std::end(kUnits) || parsed.ec != std::errc() || parsed.ptr != text.data() + digits) return std::nullopt;
    seconds += number * known->second;
    text.remove_prefix(unit);
  }
  return sign * seconds;
}

std::optional<double> read_keep_alive(ObjectReader& reader) {
  const json::value* value = reader.find("keep_alive");
  if (value == nullptr) return std::nullopt;
  const auto seconds = value->is_number()   ? std::optional(value->to_number<double>())
                       : value->is_string() ? ollama_seconds(value->get_string())
                                            : std::nullopt;
  if (!seconds && !(value->is_string() && value->get_string().empty())) {
    reader.reject("keep_alive", "is " + describe(*value), R"(send seconds, or a duration such as "5m")");
    return std::nullopt;
  }
  reader.leave_out("keep_alive");
  return seconds && *seconds >= 0 ? seconds : std::nullopt;
}

void read_num_ctx(ObjectReader& reader, std::int64_t context) {
  const auto tokens = reader.integer("num_ctx", 0, kMaxInt);
  if (!tokens || *tokens == 0) return;
  if (context > 0 && *tokens > context)
    return reader.reject("num_ctx", fmt::format("is {}, but the context has {} tokens", *tokens, context),
                         "send at most that, or start the server with a larger --max-model-len");
  reader.leave_out("num_ctx");
}

Error with_ollama_field_names(Error error, FieldApi api, const std::vector<std::string>& option_names) {
  if (api == FieldApi::ollama_generate && error.field.starts_with("messages")) error.field = "prompt";
  if (error.field.starts_with(kApiFieldPrefix)) error.field.erase(0, 1);
  const auto is_option = [&](std::string_view name) { return std::ranges::find(option_names, name) != option_names.end(); };
  for (const auto& [common, own] : kOptionNames)
    if (error.field == common && is_option(own)) error.field = own;
  if (is_option(error.field)) error.field.insert(0, kOptions);
  return error;
}

Result<OllamaCall> call_of_ollama(json::object body, FieldApi api, const OllamaModel& model, std::vector<std::string>& ignored) {
  ObjectReader reader(body, api);
  OllamaCall call;
  call.model = reader.text("model");
  if (call.model.empty()) reader.reject("model", "is missing", "use a model from /api/tags");
  Penalties penalties;
  read_options_object(reader, body, api, model, ignored, call, penalties);
  call.body.insert_or_assign("stream", reader.boolean("stream", true));
  call.is_unload = read_keep_alive(reader) == 0.0;
  if (api == FieldApi::ollama_chat) {
    read_chat(reader, model, ignored, call);
  } else {
    read_prompt(reader, model, call);
    read_logprobs(reader, call);
  }
  if (json::value* format = reader.find("format")) {
    close_objects(*format);
    call.body.emplace("format", std::move(*format));
  }
  read_think(reader, model, call);
  read_options(reader, {}, model, call.body, penalties);
  apply_penalties(reader, penalties, call.body);
  if (const auto done = reader.finish(ignored); !done) return std::unexpected(done.error());
  return call;
}

}  // namespace quire
