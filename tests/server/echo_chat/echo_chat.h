#pragma once
// An invented API of a third vendor with a separate wire format. {"say": "...", "live": true} is answered by {"said": "...", "why": "..."}
// or by lines "word ..." and "bye ...". Everything that it needs is in this folder; the server registers it with `echo_chat_routes`.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "server/answers/single_answer_writer.h"
#include "server/api/routes.h"
#include "server/api/serving.h"
#include "server/request/field_names.h"
#include "server/request/object_reader.h"
#include "server/request/prepare.h"

namespace quire {

class EchoWriter final : public SingleAnswerWriter {
 public:
  EchoWriter(AnswerHead head, bool is_stream) : head_(std::move(head)), is_stream_(is_stream) {}

  void begin(std::string& events, const Usage& usage) override { events += fmt::format("hello {} {}\n", head_.id, usage.prompt_tokens); }
  void add(std::string& events, const AnswerPart& part) override {
    if (part.kind != AnswerPart::Kind::content) return;
    if (is_stream_)
      events += fmt::format("word {}\n", json_string(part.text));
    else
      said_ += part.text;
  }
  void end(std::string& events, const AnswerEnd& end) override {
    const char* const why = end.reason == FinishReason::length ? "enough" : "done";
    if (is_stream_) events += fmt::format("bye {} {}\n", why, end.usage.completion_tokens);
    whole_ = fmt::format(R"({{"id":{},"said":{},"why":"{}"}})", json_string(head_.id), json_string(said_), why);
  }
  void fail(std::string& events, const Error& error) override { events += fmt::format("oops {}\n", json_string(error.message)); }
  [[nodiscard]] std::string whole() const override { return whole_; }

 private:
  AnswerHead head_;
  bool is_stream_;
  std::string said_, whole_;
};

class EchoShape final : public AnswerShape {
 public:
  [[nodiscard]] std::string_view id_prefix() const override { return "echo_"; }
  [[nodiscard]] bool always_has_parts() const override { return true; }
  [[nodiscard]] Error with_client_field_names(Error error) const override {
    static constexpr FieldName kNames[] = {{"max_tokens", "most"}, {"messages", "say"}};
    return rename_fields(kNames, std::move(error));
  }
  [[nodiscard]] std::unique_ptr<AnswerWriter> make_writer(AnswerHead head, const CompletionRequest& request,
                                                          const Tokenizer& /*tokenizer*/) const override {
    return std::make_unique<EchoWriter>(std::move(head), request.stream);
  }
};

inline Result<CompletionRequest> read_echo_chat(const std::string& body, const RequestContext& context) {
  auto object = parse_object(body);
  if (!object) return std::unexpected(object.error());
  ObjectReader reader(*object);
  boost::json::object chat{{"messages", {{{"role", "user"}, {"content", reader.text("say")}}}}, {"stream", reader.boolean("live", false)}};
  if (const boost::json::value* most = reader.find("most")) chat.emplace("max_tokens", *most);
  if (const auto done = reader.finish(); !done) return std::unexpected(done.error());
  return read_chat_of(std::make_shared<const EchoShape>(), std::move(chat), {}, context);
}

inline HttpResponse as_echo_error(HttpResponse response) {
  response.body = fmt::format(R"({{"oops":{}}})", json_string(response.body));
  return response;
}

inline ApiRoutes echo_chat_routes(Serving& serving) {
  const auto chat = [&serving](HttpRequest& request, const Wake& wake) { return serving.complete(request, wake, read_echo_chat); };
  return {.routes = {{"/v1/echo-chat", "POST", Access::key, chat}}, .error_path_prefix = "/v1/echo-chat", .convert_error = as_echo_error};
}

}  // namespace quire
