// Implements the clients of `quire demo`. Each client runs on a separate thread and uses the server over HTTP, as any client does. The
// texts are drawn from a seed, so two demos with the same seed send the same texts. The timing depends on the machine.
#include "cli/demo_mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/random.h"

namespace quire {

namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kAnswerTimeout(120);
constexpr unsigned kAnswered = 200;

constexpr std::array<std::string_view, 8> kTopics = {"the harbour", "the mill",   "the observatory", "the orchard",
                                                     "the archive", "the bridge", "the glassworks",  "the lighthouse"};
constexpr std::array<std::string_view, 12> kSentences = {
    "Since the flood {} has been watched by three people who write down what they see at dawn, at noon and at dusk.",
    "In the first year {} cost more than anybody had expected, and the council asked for a second opinion.",
    "Visitors of {} are told to bring warm clothes, for the wind comes from the north on most days of the year.",
    "The oldest drawing of {} hangs in the town hall, next to the map that the surveyors left behind.",
    "What is known of {} comes from letters, and not all of the letters agree with each other.",
    "Two engineers measured {} again last spring and found it a hand's breadth lower than before.",
    "Whoever has the key of {} must sign the book, and the book is read aloud once a year.",
    "A song about {} is sung in the valley, but nobody remembers who wrote its last verse.",
    "The workers of {} rest on the ninth day, which visitors find out when they stand before a closed door.",
    "When the road was built, {} was to be torn down; a petition with four hundred names saved it.",
    "The water that runs past {} is clear in winter and brown in summer, when the upper fields are ploughed.",
    "Of all the stories that are told of {}, the one with the clock is the most likely to be true."};
constexpr std::array<std::string_view, 6> kQuestions = {
    "What would you ask the people who work there?", "Name three things to find out first.",
    "Tell it to a child in two sentences.",          "What is missing in this report?",
    "Which sentence is the most surprising?",        "What happens next?"};
constexpr std::string_view kManual =
    "You are the assistant of a small town's office. You answer briefly and say what you do not know. You may ask for a record, and the "
    "record is handed to you as text. Before you answer, look at what has been said so far. Never invent a date, a name or a sum. If two "
    "records differ, name both. Sums are in the town's own coin. Days are counted from the first of the year. If somebody asks for "
    "something that the office does not do, say who does it. Write plainly: no lists where a sentence will do, no headings, no greetings. ";

std::string paragraph(Random& random, std::string_view topic, std::uint64_t num_sentences) {
  std::string text;
  for (std::uint64_t i = 0; i < num_sentences; ++i) {
    std::string_view sentence = kSentences.at(random.below(kSentences.size()));
    const std::size_t at = sentence.find("{}");
    text += sentence.substr(0, at);
    text += topic;
    text += sentence.substr(at + 2);
    text += ' ';
  }
  return text;
}

std::string_view pick(Random& random, std::span<const std::string_view> texts) {
  return texts[random.below(texts.size())];
}

json::object message(std::string_view role, std::string_view text) {
  return {{"role", role}, {"content", text}};
}

}  // namespace

// One client, which repeats its kind of work until the mix ends.
class DemoClient {
 public:
  DemoClient(DemoMix& mix, std::uint64_t number) : mix_(mix), number_(number), random_(mix.options_.seed * 1000 + number) {}

  void run() {
    // Begins after a random delay, so that the clients begin at different times.
    if (!pause(0.0, 0.4 * static_cast<double>(mix_.options_.num_clients))) return;
    while (!mix_.is_stopping()) play();
  }

 private:
  bool pause(double least_s, double most_s) {
    const double share = static_cast<double>(random_.below(1000)) / 1000.0;
    return mix_.pause((least_s + (most_s - least_s) * share) * mix_.options_.pace);
  }

  void play() {
    switch (number_ % 7) {
      case 0:
      case 1:
      case 2:
        return work();
      case 3:
      case 4:
        return read();
      case 5:
        return write();
      default:
        return random_.chance(0.5) && mix_.options_.supports_schemas ? fill_form() : leave();
    }
  }

  // Plays an agent: a manual that all agents share, then a record and an answer in each turn.
  void work() {
    json::array messages = {message("system", std::string(kManual) + std::string(kManual))};
    const std::uint64_t num_turns = random_.between(3, 6);
    for (std::uint64_t turn = 0; turn < num_turns; ++turn) {
      const std::string_view topic = pick(random_, kTopics);
      messages.push_back(message("user", fmt::format("Record {} of {}: {}{}", turn + 1, topic,
                                                     paragraph(random_, topic, random_.between(2, 6)), pick(random_, kQuestions))));
      const std::string answer = chat(messages, {{"max_tokens", random_.between(24, 72)}, {"temperature", 0.7}});
      messages.push_back(message("assistant", answer));
      if (!pause(0.5, 3.0)) return;
    }
    pause(1.0, 4.0);
  }

  // Plays a reader: sends one of a few fixed long texts and two questions about it. Several readers use each text, and return to it later.
  void read() {
    const std::uint64_t number = random_.below(kTopics.size());
    Random of_text(number);
    const std::string text = paragraph(of_text, kTopics.at(number), 36);
    for (int i = 0; i < 2; ++i) {
      const json::array messages = {message("user", text + std::string(pick(random_, kQuestions)))};
      chat(messages, {{"max_tokens", random_.between(32, 96)}, {"temperature", 0.3}});
      if (!pause(1.0, 4.0)) return;
    }
  }

  void write() {
    const json::array messages = {message("user", fmt::format("Write about {}.", pick(random_, kTopics)))};
    chat(messages, {{"max_tokens", random_.between(48, 128)}, {"temperature", 1.0}, {"n", 3}});
    pause(2.0, 6.0);
  }

  void fill_form() {
    const json::value schema = json::parse(
        R"({"type":"json_schema","json_schema":{"name":"record","schema":{"type":"object","properties":{"place":{"type":"string","maxLength":40},)"
        R"("visitors":{"type":"integer"},"open":{"type":"boolean"}},"required":["place","visitors","open"],"additionalProperties":false}}})");
    const json::array messages = {message("user", fmt::format("Fill in the form about {}.", pick(random_, kTopics)))};
    chat(messages, {{"max_tokens", 80}, {"temperature", 0.7}, {"response_format", schema}});
    pause(2.0, 6.0);
  }

  // Plays a client that disconnects in the middle of an answer.
  void leave() {
    const json::array messages = {message("user", paragraph(random_, pick(random_, kTopics), random_.between(4, 20)))};
    chat(messages, {{"max_tokens", 400}, {"temperature", 0.9}}, random_.between(3, 30));
    pause(2.0, 6.0);
  }

  // Sends a streamed chat request and returns the text of the first choice. Disconnects after `most_events` events.
  std::string chat(const json::array& messages, json::object fields, std::uint64_t most_events = UINT64_MAX) {
    fields["messages"] = messages;
    fields["stream"] = true;
    fields["seed"] = random_.below(1000);
    const std::string body = json::serialize(fields);
    boost::asio::ip::tcp::iostream server;
    server.expires_after(kAnswerTimeout);
    server.connect("127.0.0.1", std::to_string(mix_.options_.port));
    server << "POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " << body.size()
           << "\r\n\r\n"
           << body << std::flush;
    std::string version, line, text;
    unsigned status = 0;
    server >> version >> status;
    if (status != kAnswered) {
      ++mix_.num_refused_;
      return text;
    }
    std::uint64_t num_events = 0;
    while (num_events < most_events && !mix_.is_stopping() && std::getline(server, line)) {
      if (!line.starts_with("data: {")) continue;
      ++num_events;
      append_text(line.substr(std::string_view("data: ").size()), text);
    }
    ++(num_events == most_events ? mix_.num_left_ : mix_.num_answers_);
    return text;
  }

  static void append_text(std::string_view event, std::string& text) {
    boost::system::error_code error;
    const json::value told = json::parse(event, error);
    if (error || !told.is_object()) return;
    const json::value* const choices = told.get_object().if_contains("choices");
    if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return;
    const json::object& choice = choices->get_array().front().as_object();
    const json::value* const delta = choice.if_contains("delta");
    const json::value* const content = delta != nullptr && delta->is_object() ? delta->get_object().if_contains("content") : nullptr;
    if (content != nullptr && content->is_string() && choice.at("index").to_number<int>() == 0) text += content->get_string();
  }

  DemoMix& mix_;
  const std::uint64_t number_;
  Random random_;
};

DemoMix::DemoMix(const DemoMixOptions& options) : options_(options) {
  threads_.reserve(options.num_clients);
  for (std::uint64_t i = 0; i < options.num_clients; ++i)
    threads_.emplace_back([this, i] {
      // A client whose connection breaks ends, and counts as rejected.
      try {
        DemoClient(*this, i).run();
      } catch (const std::exception&) {
        ++num_refused_;
      }
    });
}

DemoMix::~DemoMix() {
  stop();
  for (std::thread& thread : threads_) thread.join();
}

void DemoMix::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
}

bool DemoMix::pause(double seconds) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return stopping_.load(); });
}

}  // namespace quire
