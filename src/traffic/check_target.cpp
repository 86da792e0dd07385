#include "traffic/check_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>

#include "traffic/answer_reader.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr std::uint32_t kFewWords = 16, kManyWords = 144;
constexpr unsigned kHttpOk = 200, kUnauthorized = 401, kForbidden = 403;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

std::unexpected<Error> refused_key(const Target& target, unsigned status) {
  return fail(ErrorCode::invalid_argument, "--api-key", fmt::format("{} refuses the key with status {}", target.url(), status),
              "give a key of this server");
}

std::unexpected<Error> no_openai_server(const Target& target, unsigned status) {
  return fail(ErrorCode::unsupported, "--url", fmt::format("{}/v1/models gives status {} and no list of models", target.url(), status),
              "use the URL of an OpenAI-compatible server");
}

// Returns the list of models in an answer of /v1/models; null if it is another text. `value` owns the list.
const json::array* models_in(const std::string& body, json::value& value) {
  boost::system::error_code code;
  value = json::parse(body, code);
  const json::value* const data = !code && value.is_object() ? value.get_object().if_contains("data") : nullptr;
  return data != nullptr ? data->if_array() : nullptr;
}

// Returns the number of prompt tokens that the server counts; 0 if it reports no usage.
Result<std::uint32_t> count_prompt(Target& target, const std::string& path, const std::string& body, double timeout_s) {
  AnswerReader reader(AnswerReader::Clock::now());
  const auto answer = target.ask("POST", path, body, milliseconds_of(timeout_s));
  if (!answer) return std::unexpected(answer.error());
  if (answer->status == kUnauthorized || answer->status == kForbidden) return refused_key(target, answer->status);
  const AnswerReader::Clock::time_point now = AnswerReader::Clock::now();
  reader.take(answer->status, answer->body, now);
  const RequestRecord record = reader.finish(answer->status, now);
  if (record.end == RequestRecord::End::completed) return record.has_usage ? record.prompt_tokens : 0;
  return fail(ErrorCode::unsupported, "--url", fmt::format("{}{} does not answer a short request: {}", target.url(), path, record.failure),
              "correct --served-model or --endpoint, or add --no-ignore-eos, as the message requires");
}

}  // namespace

Result<std::string> find_served_model(Target& target, const std::string& model, double timeout_s) {
  const auto answer = target.ask("GET", "/v1/models", "", milliseconds_of(timeout_s));
  if (!answer) return std::unexpected(answer.error());
  if (answer->status == kUnauthorized || answer->status == kForbidden) return refused_key(target, answer->status);
  json::value value;
  const json::array* const models = answer->status == kHttpOk ? models_in(answer->body, value) : nullptr;
  if (models == nullptr) return no_openai_server(target, answer->status);
  if (!model.empty()) return model;
  const json::object* const first = models->empty() ? nullptr : models->front().if_object();
  const json::value* const id = first != nullptr ? first->if_contains("id") : nullptr;
  if (id == nullptr || !id->is_string() || id->get_string().empty())
    return fail(ErrorCode::not_found, "--served-model", fmt::format("{} lists no model", target.url()), "load a model, or give its name");
  return std::string(id->get_string());
}

Result<WordScale> measure_words(Target& target, const std::string& path, const std::function<std::string(std::uint32_t num_words)>& body,
                                double timeout_s) {
  const auto few = count_prompt(target, path, body(kFewWords), timeout_s);
  if (!few) return std::unexpected(few.error());
  const auto many = count_prompt(target, path, body(kManyWords), timeout_s);
  if (!many) return std::unexpected(many.error());
  if (*few == 0 || *many <= *few) return WordScale{};
  constexpr double kLeast = 0.25, kMost = 16.0;
  const double per_word = std::clamp(static_cast<double>(*many - *few) / (kManyWords - kFewWords), kLeast, kMost);
  return WordScale{.fixed_tokens = *few - kFewWords * per_word, .tokens_per_word = per_word};
}

}  // namespace quire
