// Implements quire/quire.h. Each function finds its handles, calls LoadedEngine or OpenRequest, and converts the result to C. No exception
// leaves a function: guarded() turns it into a code.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <expected>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "capi/handle_table.h"
#include "capi/loaded_engine.h"
#include "capi/open_request.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/version.h"
#include "quire/quire.h"

namespace quire {
namespace {

static_assert(sizeof(TokenId) == sizeof(std::int32_t), "token ids are passed without a copy");

// The size of a quire_output in version 1 of the header. Later versions are larger.
constexpr std::size_t kFirstOutputSize = offsetof(quire_output, reserved) + sizeof(quire_output::reserved);

// The error of a call, as the caller receives it.
struct CallError {
  quire_code code = QUIRE_INTERNAL;
  std::string field, message;
};
using CallResult = std::expected<quire_code, CallError>;

// The tables are never destroyed, because threads of the host may use them while the process exits.
auto& engines() {
  static auto& table = *new HandleTable<quire_engine, LoadedEngine>;
  return table;
}
auto& requests() {
  static auto& table = *new HandleTable<quire_request, OpenRequest>;
  return table;
}
auto& errors() {
  static auto& table = *new HandleTable<quire_error, CallError>;
  return table;
}

quire_code code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return QUIRE_INVALID_ARGUMENT;
    case ErrorCode::not_found:
      return QUIRE_NOT_FOUND;
    case ErrorCode::unsupported:
      return QUIRE_UNSUPPORTED;
    case ErrorCode::too_large:
      return QUIRE_TOO_LARGE;
    case ErrorCode::overloaded:
      return QUIRE_OVERLOADED;
    case ErrorCode::corrupt:
      return QUIRE_CORRUPT;
    case ErrorCode::io:
      return QUIRE_IO;
    case ErrorCode::shutting_down:
      return QUIRE_SHUTTING_DOWN;
    case ErrorCode::unavailable:
      return QUIRE_UNAVAILABLE;
  }
  return QUIRE_INTERNAL;
}

std::unexpected<CallError> failed(const Error& error) {
  return std::unexpected(CallError{code_of(error.code), error.field, error.to_string()});
}
std::unexpected<CallError> invalid(const char* argument, const char* message) {
  return std::unexpected(CallError{QUIRE_INVALID_ARGUMENT, argument, fmt::format("{}: {}", argument, message)});
}
std::unexpected<CallError> not_a_handle(const char* kind) {
  return std::unexpected(
      CallError{QUIRE_INVALID_HANDLE, kind, fmt::format("{0}: the handle is null, was freed, or is not a quire_{0}", kind)});
}
std::unexpected<CallError> engine_is_freed() {
  return std::unexpected(CallError{QUIRE_SHUTTING_DOWN, "", "the engine was freed; load another engine"});
}

// The inverse of the statuses and codes of server/http/error_response.
quire_code code_of(const ReplyError& error) {
  if (error.code == "overloaded") return error.status == 503 ? QUIRE_UNAVAILABLE : QUIRE_OVERLOADED;
  if (error.code == "shutting_down") return QUIRE_SHUTTING_DOWN;
  if (error.code == "unsupported") return QUIRE_UNSUPPORTED;
  if (error.status == 404 || error.code.ends_with("not_found")) return QUIRE_NOT_FOUND;
  if (error.status == 413) return QUIRE_TOO_LARGE;
  return error.status >= 500 || error.type == "server_error" ? QUIRE_IO : QUIRE_INVALID_ARGUMENT;
}
CallError to_call_error(const ReplyError& error) {
  return {code_of(error), error.field, error.message};
}

// Runs `call`, which returns a CallResult. Stores the error, and turns exceptions into codes.
template <class Call>
quire_code guarded(quire_error** error, Call call) noexcept {
  try {
    if (error != nullptr) *error = nullptr;
    CallResult result;
    try {
      result = call();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& thrown) {
      result = std::unexpected(CallError{QUIRE_INTERNAL, "", thrown.what()});
    }
    if (result) return *result;
    const quire_code code = result.error().code;
    if (error != nullptr) *error = errors().add(std::make_shared<CallError>(std::move(result.error())));
    return code;
  } catch (const std::bad_alloc&) {
    return QUIRE_OUT_OF_MEMORY;
  } catch (...) {
    return QUIRE_INTERNAL;
  }
}

template <class Table, class Handle>
quire_code free_handle(Table& table, Handle* handle) noexcept {
  return guarded(nullptr, [&]() -> CallResult {
    if (handle == nullptr) return QUIRE_OK;
    return table.remove(handle) != nullptr ? CallResult(QUIRE_OK) : not_a_handle("handle");
  });
}

PollTimeout timeout_of(std::int64_t timeout_ms) {
  constexpr std::int64_t kLongest = std::int64_t{1000} * 3600 * 24 * 365;  // a sum with the clock's time must not overflow
  return timeout_ms < 0 ? std::nullopt : PollTimeout(std::chrono::milliseconds(std::min(timeout_ms, kLongest)));
}

void store_string(std::string_view text, char** out) {
  char* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  *out = copy;
}

// Returns the id of the route's answer; empty if its answers have other ids.
std::string answer_id(std::string_view path, const std::string& id) {
  if (path == "/v1/chat/completions") return "chatcmpl-" + id;
  return path == "/v1/completions" ? "cmpl-" + id : std::string();
}

CallResult submit(const std::shared_ptr<LoadedEngine>& engine, const char* path, const char* body, quire_request** request) {
  auto call = engine->api().call({.method = body == nullptr ? "GET" : "POST", .target = path, .body = body == nullptr ? "" : body});
  if (!call) return failed(call.error());
  (*call)->wait_started();
  std::string id = answer_id(path, (*call)->id());
  const auto open = std::make_shared<OpenRequest>(engine, *std::move(call), std::move(id));
  if (const auto refusal = open->refusal()) return std::unexpected(to_call_error(*refusal));
  *request = requests().add(open);
  return QUIRE_OK;
}

void fill_output(const ReplyOutput& from, quire_output& to) {
  quire_output output = QUIRE_OUTPUT_INIT;
  output.json = from.json.empty() ? nullptr : from.json.c_str();
  output.text = from.text.c_str();
  output.text_size = from.text.size();
  output.token_ids = from.tokens.empty() ? nullptr : from.tokens.data();
  output.num_token_ids = from.tokens.size();
  output.finish_reason = from.finish_reason.empty() ? nullptr : from.finish_reason.c_str();
  output.choice = from.choice;
  output.struct_size = to.struct_size;
  std::memcpy(&to, &output, std::min(sizeof output, to.struct_size));
}

CallResult poll(OpenRequest& request, PollTimeout timeout, quire_output& output) {
  const auto [next, end] = request.poll(timeout);
  if (next == nullptr) {
    if (end == LocalCallEnd::stopped) return engine_is_freed();
    return end == LocalCallEnd::none ? QUIRE_TIMEOUT : end == LocalCallEnd::cancelled ? QUIRE_CANCELLED : QUIRE_END;
  }
  if (next->error) return std::unexpected(to_call_error(*next->error));
  fill_output(*next, output);
  return QUIRE_OK;
}

CallResult explain(const OpenRequest& request, char** json) {
  if (request.id().empty())
    return std::unexpected(CallError{QUIRE_UNSUPPORTED, "request", "request: only completions and chats can be explained"});
  const auto engine = request.engine();
  if (engine == nullptr) return engine_is_freed();
  auto call = engine->api().call({.method = "GET", .target = fmt::format("/v1/requests/{}/explain", request.id())});
  if (!call) return failed(call.error());
  OpenRequest answer(engine, *std::move(call), {});
  const auto [next, end] = answer.poll(std::nullopt);
  if (next == nullptr) return engine_is_freed();
  if (next->error) return std::unexpected(to_call_error(*next->error));
  store_string(next->json, json);
  return QUIRE_OK;
}

}  // namespace
}  // namespace quire

using namespace quire;  // the functions below are C, and have no namespace

int quire_c_version(void) {
  return QUIRE_C_VERSION;
}

const char* quire_version(void) {
  return kVersion.data();
}

const char* quire_error_message(const quire_error* error) {
  const auto found = errors().find(error);
  return found != nullptr ? found->message.c_str() : "error: the handle is null, was freed, or is not a quire_error";
}

const char* quire_error_field(const quire_error* error) {
  const auto found = errors().find(error);
  return found != nullptr ? found->field.c_str() : "";
}

quire_code quire_error_free(quire_error* error) {
  return free_handle(errors(), error);
}

quire_code quire_engine_load(const char* model, const char* options, quire_engine** engine, quire_error** error) {
  return guarded(error, [&]() -> CallResult {
    if (engine == nullptr) return invalid("engine", "is NULL. Pass the address of a quire_engine*");
    *engine = nullptr;
    if (model == nullptr || *model == '\0') return invalid("model", "is empty. Pass the path of a GGUF file or of a folder");
    auto loaded = LoadedEngine::load(model, options == nullptr ? "" : options);
    if (!loaded) return failed(loaded.error());
    *engine = engines().add(*std::move(loaded));
    return QUIRE_OK;
  });
}

quire_code quire_engine_free(quire_engine* engine) {
  return guarded(nullptr, [&]() -> CallResult {
    if (engine == nullptr) return QUIRE_OK;
    const auto removed = engines().remove(engine);
    if (removed == nullptr) return not_a_handle("engine");
    removed->stop();  // also if a call on another thread still holds the engine
    return QUIRE_OK;
  });
}

quire_code quire_stats(quire_engine* engine, char** json, quire_error** error) {
  return guarded(error, [&]() -> CallResult {
    if (json == nullptr) return invalid("json", "is NULL. Pass the address of a char*");
    *json = nullptr;
    const auto found = engines().find(engine);
    if (found == nullptr) return not_a_handle("engine");
    store_string(found->stats_json(), json);
    return QUIRE_OK;
  });
}

quire_code quire_submit(quire_engine* engine, const char* path, const char* body, quire_request** request, quire_error** error) {
  return guarded(error, [&]() -> CallResult {
    if (request == nullptr) return invalid("request", "is NULL. Pass the address of a quire_request*");
    *request = nullptr;
    if (path == nullptr) return invalid("path", "is NULL. Pass a route, such as /v1/chat/completions");
    const auto found = engines().find(engine);
    return found != nullptr ? submit(found, path, body, request) : not_a_handle("engine");
  });
}

quire_code quire_poll(quire_request* request, std::int64_t timeout_ms, quire_output* output, quire_error** error) {
  return guarded(error, [&]() -> CallResult {
    const auto found = requests().find(request);
    if (found == nullptr) return not_a_handle("request");
    if (output == nullptr) return invalid("output", "is NULL. Pass the address of a quire_output");
    if (output->struct_size < kFirstOutputSize) return invalid("output", "has no struct_size. Initialize it with QUIRE_OUTPUT_INIT");
    return poll(*found, timeout_of(timeout_ms), *output);
  });
}

quire_code quire_wait(quire_request* request, std::int64_t timeout_ms, quire_error** error) {
  return guarded(error, [&]() -> CallResult {
    const auto found = requests().find(request);
    if (found == nullptr) return not_a_handle("request");
    return found->call().wait_ended(timeout_of(timeout_ms)) ? QUIRE_OK : QUIRE_TIMEOUT;
  });
}

quire_code quire_cancel(quire_request* request, quire_error** error) {
  return guarded(error, [&]() -> CallResult {
    const auto found = requests().find(request);
    if (found == nullptr) return not_a_handle("request");
    found->call().cancel();
    return QUIRE_OK;
  });
}

const char* quire_request_id(quire_request* request) {
  const auto found = requests().find(request);
  return found != nullptr ? found->id().c_str() : nullptr;
}

quire_code quire_explain(quire_request* request, char** json, quire_error** error) {
  return guarded(error, [&]() -> CallResult {
    if (json == nullptr) return invalid("json", "is NULL. Pass the address of a char*");
    *json = nullptr;
    const auto found = requests().find(request);
    return found != nullptr ? explain(*found, json) : not_a_handle("request");
  });
}

quire_code quire_request_free(quire_request* request) {
  return guarded(nullptr, [&]() -> CallResult {
    if (request == nullptr) return QUIRE_OK;
    const auto removed = requests().remove(request);
    if (removed == nullptr) return not_a_handle("request");
    removed->call().cancel();  // also if a call on another thread still holds the request
    return QUIRE_OK;
  });
}

void quire_string_free(char* string) {
  std::free(string);
}
