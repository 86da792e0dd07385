// Writes the causes that the core reports as JSON, with a description in words. Called on the server's thread by the routes of this folder;
// the engine thread collects the data between two steps. An answer must reveal nothing about other tenants: neither that a request exists,
// nor its tokens.
#include "server/operate/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <utility>

#include "base/json_writer.h"
#include "quire/text/tokenizer.h"
#include "server/api/serving.h"
#include "server/request/served_model.h"

namespace quire {
namespace {

struct CauseText {
  std::string_view name, text;
};

// Indexed by enumerator: a new enumerator needs an entry here too.
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

double sum_s(const std::vector<WaitFact>& waits) {
  return std::accumulate(waits.begin(), waits.end(), 0.0, [](double sum, const WaitFact& wait) { return sum + wait.seconds; });
}

class ExplanationWriter {
 public:
  ExplanationWriter(JsonWriter& json, const Tokenizer& tokenizer, bool includes_other_prompts)
      : json_(json), tokenizer_(tokenizer), includes_other_prompts_(includes_other_prompts) {}

  void request(const RequestExplanation& facts) {
    json_.begin_object().field("state", facts.ended_s ? "ended" : facts.admitted_s ? "admitted" : "waiting");
    json_.field("summary", summary(facts));
    waits("waited_s", "waits", facts.waits);
    waits("waited_again_s", "waits_again", facts.later_waits);
    json_.field("blocked_by", unless_empty(facts.blocked_by_name));
    json_.field("behind", unless_empty(facts.blocked_by_name));  // the name in version 0.1
    prompt(facts);
    json_.begin_array("misses");
    for (const MissFact& fact : facts.misses) miss(fact);
    json_.end_array().field("num_preemptions", facts.num_preemptions).begin_array("preemptions");
    for (const PreemptionFact& fact : facts.preemptions) preemption(fact);
    json_.end_array().end_object();
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

  void cause(const CauseText& words) { json_.begin_object().field("cause", words.name).field("text", words.text); }

  void waits(std::string_view sum_name, std::string_view name, const std::vector<WaitFact>& facts) {
    json_.fixed_field(sum_name, sum_s(facts), 6).begin_array(name);
    for (const WaitFact& fact : facts) {
      cause(cause_text(fact.cause));
      json_.fixed_field("seconds", fact.seconds, 6).field("steps", fact.num_steps).end_object();
    }
    json_.end_array();
  }

  void prompt(const RequestExplanation& facts) {
    json_.begin_object("prompt").field("tokens", facts.num_tokens).field("cached", facts.num_cached);
    json_.field("from_tiers", facts.num_external).field("shared", facts.num_shared).field("missed", facts.num_missed);
    json_.begin_object("missed_by_cause");
    for (std::size_t i = 0; i < kNumMissCauses; ++i)
      if (facts.missed.at(i) > 0) json_.field(kMissCauseTexts.at(i).name, facts.missed.at(i));
    json_.end_object();
    if (facts.remembered_since.value > 0) json_.field("remembered_since_step", facts.remembered_since.value);
    json_.end_object();
  }

  void miss(const MissFact& fact) {
    cause(kMissCauseTexts.at(static_cast<std::size_t>(fact.cause)));
    json_.field("first_token", fact.first_token).field("tokens", fact.num_tokens);
    if (fact.cause == MissCause::evicted || fact.cause == MissCause::forgotten || fact.cause == MissCause::reset)
      json_.field("step", fact.step.value);
    if (fact.cause == MissCause::evicted) json_.field("by", unless_empty(fact.by_name));
    if (fact.differs_at) {
      json_.field("differs_at", *fact.differs_at).field("before", tokenizer_.decode(fact.before, false));
      json_.field("own", tokenizer_.decode(fact.own, false));
      if (includes_other_prompts_) json_.field("stored", tokenizer_.decode(fact.stored, false));
    }
    json_.end_object();
  }

  void preemption(const PreemptionFact& fact) {
    cause(cause_text(fact.cause));
    json_.field("step", fact.step.value).field("by", unless_empty(fact.by_name)).field("missing_blocks", fact.num_missing_blocks);
    json_.field("swapped_out", fact.swapped_out).field("lost_tokens", fact.num_lost_tokens).end_object();
  }

  JsonWriter& json_;
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
  return json_object([&](JsonWriter& json) {
    json.field("object", "request.explanation").field("id", id).begin_array("requests");
    ExplanationWriter writer(json, tokenizer, includes_other_prompts);
    for (const RequestExplanation& facts : requests) writer.request(facts);
    json.end_array();
  });
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
