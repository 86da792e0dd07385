// quire explain: why a request of a running server waited, missed the cache or gave way; asked of the server, which knows. On the main
// thread.
#include <fmt/format.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "cli/command.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kPatience(30);
constexpr unsigned kOk = 200;

struct ExplainFlags {
  std::string id, host = "127.0.0.1", key;
  std::uint16_t port = 8000;
  bool as_json = false;
};

Result<std::string> get(const ExplainFlags& flags) {
  boost::asio::ip::tcp::iostream server;
  server.expires_after(kPatience);
  server.connect(flags.host, std::to_string(flags.port));
  server << "GET /v1/requests/" << flags.id << "/explain HTTP/1.1\r\nHost: " << flags.host << ':' << flags.port
         << "\r\nConnection: close\r\n"
         << (flags.key.empty() ? std::string() : "Authorization: Bearer " + flags.key + "\r\n") << "\r\n"
         << std::flush;
  std::string version, line;
  unsigned status = 0;
  server >> version >> status;
  while (std::getline(server, line) && line != "\r") {
  }
  std::string body((std::istreambuf_iterator<char>(server)), {});
  if (status == 0)
    return fail(ErrorCode::not_found, "--port", fmt::format("no server answers at {}:{}", flags.host, flags.port),
                "start quire serve, or name its --host and --port");
  if (status != kOk) return fail(ErrorCode::not_found, "ID", fmt::format("status {}: {}", status, body), "take the id of an answer");
  return body;
}

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
  const Result<std::string> body = get(flags);
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
  command->add_option("--host", flags->host, "Where the server listens")->capture_default_str();
  command->add_option("--port", flags->port, "Its port")->capture_default_str();
  command->add_option("--api-key", flags->key, "The server's, or the tenant's whose request it is")->envname("QUIRE_API_KEY");
  command->add_flag("--json", flags->as_json, "Print the answer as it came");
  command->footer("Example:\n  quire explain chatcmpl-c0ffee --port 8000");
  return {command, [flags]() { return explain(*flags); }};
}

}  // namespace quire
