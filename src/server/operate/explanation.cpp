// Describes the causes that the core reports in words, and writes both as JSON. The router calls it for a client; the engine thread
// collects the data between two steps. It must reveal nothing about other tenants: neither that a request exists, nor its tokens.
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

struct CauseText {
  std::string_view name, text;
};

// The index is the enumerator's number: a new enumerator needs an entry here too.
constexpr std::array<CauseText, kNumEventCauses> kEventCauseTexts = {{
    {"next_step", "it arrived while a step was running"},
    {"lack_of_blocks", "the KV cache had too few free blocks (--kv-cache-memory)"},
    {"expired", "its pin expired"},
    {"replaced", "a later turn replaced it"},
    {"job_over", "its job had ended"},
    {"reset", "the prefix cache was reset"},
    {"pressure", "KV cache usage was above --kv-pressure-high"},
    {"pressure_over", "KV cache usage was below --kv-pressure-low"},
    {"no_place", "too few swap slots were free"},
    {"no_gain", "recomputing was as fast as swapping"},
    {"failed_transfer", "some of its blocks could not be loaded"},
    {"paused", "the engine was paused"},
    {"no_tokens", "other requests used the token budget of the step (--max-num-batched-tokens, --step-time-target)"},
    {"no_slot", "all batch slots were in use (--max-num-seqs)"},
    {"preempting", "running requests needed more blocks, so no request was admitted"},
    {"grammar", "its grammar was being compiled"},
    {"loading", "its blocks were being loaded from a tier"},
    {"connector", "the connector did not know yet which blocks it can load"},
    {"adapter", "the maximum number of adapters was in use (--max-loras)"},
    {"input", "it is a session and was waiting for its next input"},
}};

constexpr std::array<CauseText, kNumMissCauses> kMissCauseTexts = {{
    {"never_stored", "they were not computed before, or this is no longer remembered"},
    {"diverged", "the prompt diverges from the cached prefix"},
    {"evicted", "their blocks were evicted for other requests"},
    {"forgotten", "their blocks were removed because the content was in doubt"},
    {"reset", "the prefix cache was reset after they were stored"},
    {"behind_a_miss", "they are cached, but tokens before them are not"},
    {"last_token", "the last token is always computed, to sample the next one"},
    {"other_group", "another cache group (sliding window or state) did not keep them"},
    {"partial_block", "only full blocks are cached"},
    {"load_failed", "a tier had them, but could not load them"},
    {"not_looked_up", "the request needs results for its whole prompt, or prefix caching is off"},
}};

const CauseText& cause_text(EventCause cause) {
  return kEventCauseTexts.at(static_cast<std::size_t>(cause));
}

// Writes the members of one JSON object.
class Object {
 public:
  explicit Object(std::string& out) : out_(out) { out_ += '{'; }
  void text(std::string_view name, std::string_view value) { add(name, json_string(value)); }
  // Writes null for an empty value.
  void text_or_null(std::string_view name, std::string_view value) { add(name, value.empty() ? std::string("null") : json_string(value)); }
  template <class Number>
  void number(std::string_view name, Number value) {
    add(name, fmt::format("{}", value));
  }
  void flag(std::string_view name, bool value) { add(name, value ? "true" : "false"); }
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
  ExplanationWriter(const Tokenizer& tokenizer, bool includes_other_prompts)
      : tokenizer_(tokenizer), includes_other_prompts_(includes_other_prompts) {}

  std::string out;

  void request(const RequestExplanation& facts) {
    Object object(out);
    object.text("state", facts.ended_s ? "ended" : facts.admitted_s ? "admitted" : "waiting");
    object.text("summary", summary(facts));
    object.seconds("waited_s", sum_s(facts.waits));
    object.list("waits", facts.waits, [this](const WaitFact& fact) { wait(fact); });
    object.seconds("waited_again_s", sum_s(facts.later_waits));
    object.list("waits_again", facts.later_waits, [this](const WaitFact& fact) { wait(fact); });
    object.text_or_null("blocked_by", facts.blocked_by_name);
    object.text_or_null("behind", facts.blocked_by_name);  // the name in version 0.1
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
      text += fmt::format(", most of it because {}", cause_text(facts.waits.front().cause).text);
    if (facts.num_tokens > 0) {
      text += fmt::format("; {} of {} prompt tokens did not need to be computed", facts.num_tokens - facts.num_missed, facts.num_tokens);
      const auto most = std::ranges::max_element(facts.missed);
      if (*most > 0)
        text += fmt::format(", {} were missed because {}", *most,
                            kMissCauseTexts.at(static_cast<std::size_t>(most - facts.missed.begin())).text);
    }
    if (facts.num_preemptions > 0)
      text += fmt::format("; preempted {} {}", facts.num_preemptions, facts.num_preemptions == 1 ? "time" : "times");
    return text;
  }

  void wait(const WaitFact& fact) {
    Object object(out);
    object.text("cause", cause_text(fact.cause).name);
    object.text("text", cause_text(fact.cause).text);
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
      if (facts.missed.at(i) > 0) causes.number(kMissCauseTexts.at(i).name, facts.missed.at(i));
    causes.end();
    if (facts.remembered_since.value > 0) object.number("remembered_since_step", facts.remembered_since.value);
    object.end();
  }

  void miss(const MissFact& fact) {
    const CauseText& words = kMissCauseTexts.at(static_cast<std::size_t>(fact.cause));
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
      if (includes_other_prompts_) object.text("stored", tokenizer_.decode(fact.stored, false));
    }
    object.end();
  }

  void preemption(const PreemptionFact& fact) {
    Object object(out);
    object.text("cause", cause_text(fact.cause).name);
    object.text("text", cause_text(fact.cause).text);
    object.number("step", fact.step.value);
    object.text_or_null("by", fact.by_name);
    object.number("missing_blocks", fact.num_missing_blocks);
    object.flag("swapped_out", fact.swapped_out);
    object.number("lost_tokens", fact.num_lost_tokens);
    object.end();
  }

  const Tokenizer& tokenizer_;
  const bool includes_other_prompts_;
};

}  // namespace

std::string_view name_of(EventCause cause) {
  return cause_text(cause).name;
}

std::string_view name_of(MissCause cause) {
  return kMissCauseTexts.at(static_cast<std::size_t>(cause)).name;
}

std::string explanation_json(std::string_view id, std::span<const RequestExplanation> requests, const Tokenizer& tokenizer,
                             bool includes_other_prompts) {
  ExplanationWriter writer(tokenizer, includes_other_prompts);
  Object object(writer.out);
  object.text("object", "request.explanation");
  object.text("id", id);
  object.list("requests", requests, [&](const RequestExplanation& facts) { writer.request(facts); });
  object.end();
  return std::move(writer.out);
}

Reply explain_request(Serving& serving, HttpRequest& request, const Wake& wake) {
  auto pending = std::make_shared<PendingReply>();
  const std::string tenant = serving.tenant_of(request);
  const std::string id = serving.full_id(tenant, std::string(path_parameter(kExplainPath, request.path())));
  const auto answer = [&serving, pending, wake, id, tenant](Result<std::vector<RequestExplanation>> found) {
    if (found) std::erase_if(*found, [&](const RequestExplanation& facts) { return facts.tenant != tenant; });
    if (!found)
      pending->reply = serving.refuse(found.error());
    else if (found->empty())
      pending->reply = serving.refuse({ErrorCode::not_found, "id", "the request is unknown, or ended too long ago",
                                       "ask sooner, or start the server with a larger --explained-requests"});
    else
      pending->reply =
          Serving::json_reply(explanation_json(id, *found, serving.model().tokenizer(), serving.options().tenant_keys.empty()));
    wake();
  };
  serving.engine().engine().explain(id, serving.engine().on_server<std::vector<RequestExplanation>>(answer));
  return {HttpResponse{}, nullptr, std::move(pending)};
}

}  // namespace quire
