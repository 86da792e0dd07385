// quire explain: shows why a request of a running server waited, missed the cache or was preempted. Runs on the main thread.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/server_client.h"

namespace quire {
namespace {

namespace json = boost::json;

struct ExplainFlags {
  std::string id;
  ServerAddress server;
  bool as_json = false;
};

void print_list(const json::object& facts, std::string_view name, std::string_view title, void (*print)(const json::object&)) {
  if (facts.at(name).as_array().empty()) return;
  fmt::print("  {}\n", title);
  for (const json::value& item : facts.at(name).as_array()) print(item.as_object());
}

std::string text(const json::object& item, std::string_view name) {
  const json::value* const value = item.if_contains(name);
  return value == nullptr || !value->is_string() ? std::string() : std::string(value->get_string());
}

void print_wait(const json::object& wait) {
  fmt::print("    {:>9.3f} s  {}\n", wait.at("seconds").to_number<double>(), text(wait, "text"));
}

void print_miss(const json::object& miss) {
  fmt::print("    {:>7} tokens from token {} on: {}", miss.at("tokens").to_number<std::uint64_t>(),
             miss.at("first_token").to_number<std::uint64_t>(), text(miss, "text"));
  if (miss.contains("step")) fmt::print(", in step {}", miss.at("step").to_number<std::uint64_t>());
  if (!text(miss, "by").empty()) fmt::print(", for {}", text(miss, "by"));
  if (miss.contains("differs_at"))
    fmt::print(", first difference at token {}: {} instead of {}", miss.at("differs_at").to_number<std::uint64_t>(),
               json::serialize(miss.at("own")), miss.contains("stored") ? json::serialize(miss.at("stored")) : "tokens of another tenant");
  fmt::print("\n");
}

void print_preemption(const json::object& item) {
  fmt::print("    step {}: {}, {} blocks missing; {}{} tokens to recompute", item.at("step").to_number<std::uint64_t>(), text(item, "text"),
             item.at("missing_blocks").to_number<std::uint64_t>(), item.at("swapped_out").as_bool() ? "swapped out, " : "",
             item.at("lost_tokens").to_number<std::uint64_t>());
  fmt::print("{}\n", text(item, "by").empty() ? "" : ", for " + text(item, "by"));
}

void print_request(const json::object& facts) {
  fmt::print("{}: {}\n", text(facts, "state"), text(facts, "summary"));
  print_list(facts, "waits", "waits before the first step", print_wait);
  if (!text(facts, "blocked_by").empty()) fmt::print("    blocked by {}\n", text(facts, "blocked_by"));
  print_list(facts, "misses", "cache misses of the prompt", print_miss);
  print_list(facts, "preemptions", "preemptions", print_preemption);
  print_list(facts, "waits_again", "waits after a preemption", print_wait);
}

Result<int> explain(const ExplainFlags& flags) {
  const Result<std::string> body =
      get_from(flags.server, "/v1/requests/" + flags.id + "/explain", "ID", "use the id of an answer of this server");
  if (!body) return std::unexpected(body.error());
  if (flags.as_json) {
    fmt::print("{}\n", *body);
    return 0;
  }
  try {
    for (const json::value& request : json::parse(*body).at("requests").as_array()) print_request(request.as_object());
  } catch (const std::exception&) {
    return fail(ErrorCode::corrupt, "ID", "the server did not return an explanation", "use a server with the same quire version");
  }
  return 0;
}

}  // namespace

Command add_explain_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Explain why a request of a running server was slow");
  auto flags = std::make_shared<ExplainFlags>();
  command->add_option("id", flags->id, "Id of the answer: chatcmpl-..., cmpl-..., msg_... or resp_...")
      ->required()
      ->type_name("ID")
      ->check([](const std::string& id) {
        return id.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == std::string::npos
                   ? std::string()
                   : std::string("is not the id of an answer");
      });
  add_server_flags(*command, flags->server, "API key of the server, or of the tenant that sent the request");
  command->add_flag("--json", flags->as_json, "Print the JSON answer of the server");
  command->footer("Example:\n  quire explain chatcmpl-c0ffee --port 8000");
  return {command, [flags]() { return explain(*flags); }};
}

}  // namespace quire
