// Words for the causes that the core names, and the JSON that carries both. Called by the router for a client, answered through the engine
// thread, which looks between two steps. It must say nothing of another tenant: not that a request exists, nor its tokens.
#include "server/operate/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>

#include "base/append_format.h"
#include "base/json_text.h"
#include "quire/text/tokenizer.h"
#include "server/api/serving.h"
#include "server/request/served_model.h"

namespace quire {
namespace {

struct Words {
  std::string_view name, text;
};

// By the enumerator's number: a new one goes into this list too.
constexpr std::array<Words, kNumEventCauses> kEventWords = {{
    {"next_step", "the step under way had begun before it came"},
    {"lack_of_blocks", "too few free blocks in the KV cache (--kv-cache-memory)"},
    {"expired", "its time was over"},
    {"replaced", "a later turn took its place"},
    {"job_over", "its job was over"},
    {"reset", "the prefix cache was reset"},
    {"pressure", "the KV cache was fuller than the high mark of pressure (--kv-pressure-high)"},
    {"pressure_over", "the KV cache was emptier than the low mark of pressure"},
    {"no_place", "no place to swap to"},
    {"no_gain", "computing again was as fast as moving"},
    {"failed_transfer", "blocks of it could not be loaded"},
    {"paused", "the engine was paused"},
    {"no_tokens", "the step's tokens were spent on others (--max-num-batched-tokens)"},
    {"no_slot", "as many requests ran as may (--max-num-seqs)"},
    {"preempting", "running requests lacked blocks, so nobody was admitted"},
    {"grammar", "its grammar was being compiled"},
    {"loading", "its blocks were on their way from a tier"},
    {"connector", "the connector did not know yet what it has"},
    {"adapter", "as many adapters were in use as may"},
    {"input", "it is a session, and waited for its next input"},
}};

constexpr std::array<Words, kNumMissCauses> kMissWords = {{
    {"never_stored", "not computed before, or not remembered"},
    {"diverged", "what was stored behind the same beginning goes on otherwise"},
    {"evicted", "it was stored, and its blocks were needed for others"},
    {"forgotten", "it was stored, and taken back because its content was in doubt"},
    {"reset", "it was stored, and the prefix cache was reset"},
    {"behind_a_miss", "it is stored, but not what comes before it"},
    {"last_token", "it is stored, but the last token is computed to draw the next one"},
    {"other_group", "another cache group (a window, a state) has not kept it"},
    {"partial_block", "only whole blocks are stored"},
    {"load_failed", "a tier had it, and it did not come"},
    {"not_looked_up", "the request asks for rows of its whole prompt, or prefix caching is off"},
}};

const Words& words_of(EventCause cause) {
  return kEventWords.at(static_cast<std::size_t>(cause));
}

// Members of one JSON object.
class Object {
 public:
  explicit Object(std::string& out) : out_(out) { out_ += '{'; }
  void text(std::string_view name, std::string_view value) { add(name, json_string(value)); }
  // null where it is empty.
  void text_or_null(std::string_view name, std::string_view value) { add(name, value.empty() ? std::string("null") : json_string(value)); }
  template <class Number>
  void number(std::string_view name, Number value) {
    add(name, fmt::format("{}", value));
  }
  void seconds(std::string_view name, double value) { add(name, fmt::format("{:.6f}", value)); }
  template <class Items, class Write>
  void list(std::string_view name, const Items& items, Write write) {
    key(name);
    out_ += '[';
    for (const auto& item : items) {
      if (&item != &*std::begin(items)) out_ += ',';
      write(item);
    }
    out_ += ']';
  }
  void key(std::string_view name) { append_format(out_, R"({}"{}":)", out_.back() == '{' ? "" : ",", name); }
  void end() { out_ += '}'; }

 private:
  void add(std::string_view name, std::string_view value) {
    key(name);
    out_ += value;
  }
  std::string& out_;
};

double sum_s(const std::vector<WaitFact>& waits) {
  return std::accumulate(waits.begin(), waits.end(), 0.0, [](double sum, const WaitFact& wait) { return sum + wait.seconds; });
}

class ExplanationWriter {
 public:
  ExplanationWriter(const Tokenizer& tokenizer, bool shows_others) : tokenizer_(tokenizer), shows_others_(shows_others) {}

  std::string out;

  void request(const RequestExplanation& facts) {
    Object object(out);
    object.text("state", facts.ended_s ? "ended" : facts.admitted_s ? "admitted" : "waiting");
    object.text("summary", summary(facts));
    object.seconds("waited_s", sum_s(facts.waits));
    object.list("waits", facts.waits, [this](const WaitFact& fact) { wait(fact); });
    object.seconds("waited_again_s", sum_s(facts.later_waits));
    object.list("waits_again", facts.later_waits, [this](const WaitFact& fact) { wait(fact); });
    object.text_or_null("behind", facts.behind_name);
    object.key("prompt");
    prompt(facts);
    object.list("misses", facts.misses, [this](const MissFact& fact) { miss(fact); });
    object.number("num_preemptions", facts.num_preemptions);
    object.list("preemptions", facts.preemptions, [this](const PreemptionFact& fact) { preemption(fact); });
    object.end();
  }

 private:
  static std::string summary(const RequestExplanation& facts) {
    std::string text = fmt::format("waited {:.3f} s", sum_s(facts.waits));
    if (!facts.waits.empty() && facts.waits.front().seconds > 0.0)
      text += fmt::format(", most of it because {}", words_of(facts.waits.front().cause).text);
    if (facts.num_tokens > 0) {
      text += fmt::format("; {} of {} prompt tokens need not be computed", facts.num_tokens - facts.num_missed, facts.num_tokens);
      const auto most = std::ranges::max_element(facts.missed);
      if (*most > 0)
        text +=
            fmt::format(", {} were missed because {}", *most, kMissWords.at(static_cast<std::size_t>(most - facts.missed.begin())).text);
    }
    if (facts.num_preemptions > 0) text += fmt::format("; gave way {} times", facts.num_preemptions);
    return text;
  }

  void wait(const WaitFact& fact) {
    Object object(out);
    object.text("cause", words_of(fact.cause).name);
    object.text("text", words_of(fact.cause).text);
    object.seconds("seconds", fact.seconds);
    object.number("steps", fact.num_steps);
    object.end();
  }

  void prompt(const RequestExplanation& facts) {
    Object object(out);
    object.number("tokens", facts.num_tokens);
    object.number("cached", facts.num_cached);
    object.number("from_tiers", facts.num_external);
    object.number("shared", facts.num_shared);
    object.number("missed", facts.num_missed);
    object.key("missed_by_cause");
    Object causes(out);
    for (std::size_t i = 0; i < kNumMissCauses; ++i)
      if (facts.missed.at(i) > 0) causes.number(kMissWords.at(i).name, facts.missed.at(i));
    causes.end();
    if (facts.remembered_since.value > 0) object.number("remembered_since_step", facts.remembered_since.value);
    object.end();
  }

  void miss(const MissFact& fact) {
    const Words& words = kMissWords.at(static_cast<std::size_t>(fact.cause));
    Object object(out);
    object.text("cause", words.name);
    object.text("text", words.text);
    object.number("first_token", fact.first_token);
    object.number("tokens", fact.num_tokens);
    if (fact.cause == MissCause::evicted || fact.cause == MissCause::forgotten || fact.cause == MissCause::reset)
      object.number("step", fact.step.value);
    if (fact.cause == MissCause::evicted) object.text_or_null("by", fact.by_name);
    if (fact.differs_at) {
      object.number("differs_at", *fact.differs_at);
      object.text("before", tokenizer_.decode(fact.before, false));
      object.text("own", tokenizer_.decode(fact.own, false));
      if (shows_others_) object.text("stored", tokenizer_.decode(fact.stored, false));
    }
    object.end();
  }

  void preemption(const PreemptionFact& fact) {
    Object object(out);
    object.text("cause", words_of(fact.cause).name);
    object.text("text", words_of(fact.cause).text);
    object.number("step", fact.step.value);
    object.text_or_null("by", fact.by_name);
    object.number("missing_blocks", fact.num_missing_blocks);
    object.number("lost_tokens", fact.num_lost_tokens);
    object.end();
  }

  const Tokenizer& tokenizer_;
  const bool shows_others_;
};

}  // namespace

std::string_view name_of(EventCause cause) {
  return words_of(cause).name;
}

std::string_view name_of(MissCause cause) {
  return kMissWords.at(static_cast<std::size_t>(cause)).name;
}

std::string explanation_json(std::string_view id, std::span<const RequestExplanation> requests, const Tokenizer& tokenizer,
                             bool shows_others) {
  ExplanationWriter writer(tokenizer, shows_others);
  Object object(writer.out);
  object.text("object", "request.explanation");
  object.text("id", id);
  object.list("requests", requests, [&](const RequestExplanation& facts) { writer.request(facts); });
  object.end();
  return std::move(writer.out);
}

Reply explain_request(Serving& serving, HttpRequest& request, const Wake& wake) {
  auto pending = std::make_shared<PendingReply>();
  const std::string id(name_in(kExplainPath, request.path()));
  const auto answer = [&serving, pending, wake, id, tenant = serving.tenant_of(request)](Result<std::vector<RequestExplanation>> found) {
    if (found) std::erase_if(*found, [&](const RequestExplanation& facts) { return facts.tenant != tenant; });
    if (!found)
      pending->reply = serving.refuse(found.error());
    else if (found->empty())
      pending->reply = serving.refuse(
          {ErrorCode::not_found, "id", "no such request, or it ended long ago", "ask sooner, or serve with more --explained-requests"});
    else
      pending->reply =
          Serving::json_reply(explanation_json(id, *found, serving.model().tokenizer(), serving.options().tenant_keys.empty()));
    wake();
  };
  serving.engine().engine().explain(id, serving.engine().on_server<std::vector<RequestExplanation>>(answer));
  return {HttpResponse{}, nullptr, std::move(pending)};
}

}  // namespace quire
