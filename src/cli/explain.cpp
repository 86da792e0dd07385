// quire explain: why a request of a running server waited, missed the cache or gave way; asked of the server, which knows. On the main
// thread.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <memory>
#include <string>

#include "cli/ask_server.h"
#include "cli/command.h"

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
  fmt::print("    {:>7} tokens from {}: {}", miss.at("tokens").to_number<std::uint64_t>(),
             miss.at("first_token").to_number<std::uint64_t>(), text(miss, "text"));
  if (miss.contains("step")) fmt::print(", in step {}", miss.at("step").to_number<std::uint64_t>());
  if (!text(miss, "by").empty()) fmt::print(", for {}", text(miss, "by"));
  if (miss.contains("differs_at"))
    fmt::print(", from token {} on: {} instead of {}", miss.at("differs_at").to_number<std::uint64_t>(), json::serialize(miss.at("own")),
               miss.contains("stored") ? json::serialize(miss.at("stored")) : "another tenant's");
  fmt::print("\n");
}

void print_preemption(const json::object& item) {
  fmt::print("    step {}: {}, {} blocks lacked; {} tokens to be computed again", item.at("step").to_number<std::uint64_t>(),
             text(item, "text"), item.at("missing_blocks").to_number<std::uint64_t>(), item.at("lost_tokens").to_number<std::uint64_t>());
  fmt::print("{}\n", text(item, "by").empty() ? "" : ", for " + text(item, "by"));
}

void print_request(const json::object& facts) {
  fmt::print("{}: {}\n", text(facts, "state"), text(facts, "summary"));
  print_list(facts, "waits", "waited before it ran", print_wait);
  if (!text(facts, "behind").empty()) fmt::print("    behind {}\n", text(facts, "behind"));
  print_list(facts, "misses", "missed of its prompt", print_miss);
  print_list(facts, "preemptions", "gave way", print_preemption);
  print_list(facts, "waits_again", "waited thereafter", print_wait);
}

Result<int> explain(const ExplainFlags& flags) {
  const Result<std::string> body = get_from(flags.server, "/v1/requests/" + flags.id + "/explain", "ID", "take the id of an answer");
  if (!body) return std::unexpected(body.error());
  if (flags.as_json) {
    fmt::print("{}\n", *body);
    return 0;
  }
  try {
    for (const json::value& request : json::parse(*body).at("requests").as_array()) print_request(request.as_object());
  } catch (const std::exception&) {
    return fail(ErrorCode::corrupt, "ID", "what came back is no explanation", "ask a quire of this version");
  }
  return 0;
}

}  // namespace

Command add_explain_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Ask a running server why a request was slow");
  auto flags = std::make_shared<ExplainFlags>();
  command->add_option("id", flags->id, "As in its answer: chatcmpl-..., cmpl-..., msg_..., resp_...")
      ->required()
      ->type_name("ID")
      ->check([](const std::string& id) {
        return id.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == std::string::npos
                   ? std::string()
                   : std::string("is no id of an answer");
      });
  add_server_flags(*command, flags->server, "The server's, or the tenant's whose request it is");
  command->add_flag("--json", flags->as_json, "Print the answer as it came");
  command->footer("Example:\n  quire explain chatcmpl-c0ffee --port 8000");
  return {command, [flags]() { return explain(*flags); }};
}

}  // namespace quire
