// Implements the two sides of the queue (inbox.h): clients' threads append, the engine thread takes between two steps, and the thread that
// stops the engine closes the queue. Every function holds the mutex once and only briefly. No sink or answer is called with the mutex held,
// because it may call the inbox again. An accepted request is never lost: take() returns it once, either as a submission or as cancelled.
#include "engine/requests/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/context_overflow.h"

namespace quire {
namespace {

// Returns whether executing the command takes only a moment, however much its request has computed.
bool is_cheap(const Command& command) {
  return std::holds_alternative<FinishCommand>(command);
}

}  // namespace

Result<void> Inbox::room(std::uint32_t num_requests, const Tenant* tenant) const {
  if (closed_) return refuse_closed();
  if (const std::uint32_t most = std::min(limits_.max_num_waiting, limits_.max_tenant_waiting); num_requests > most)
    return fail(ErrorCode::invalid_argument, "n",
                fmt::format("is {}, but at most {} requests of a client can wait at once", num_requests, most),
                fmt::format("use at most {}, or start the server with a larger --max-num-waiting", most));
  // Preempted requests wait again without counting in num_waiting_, so open requests beyond one full batch also count as waiting.
  const std::size_t num_beyond_batch = open_.size() - std::min<std::size_t>(open_.size(), limits_.max_num_seqs);
  const std::size_t num_waiting = std::max<std::size_t>(num_waiting_, num_beyond_batch);
  if (num_waiting + num_requests > limits_.max_num_waiting)
    return fail(ErrorCode::overloaded, "", fmt::format("{} requests are waiting already", num_waiting), "try again later");
  if (limits_.max_num_queued_reqs > 0 && open_.size() + num_requests > limits_.max_num_queued_reqs)
    return fail(ErrorCode::unavailable, "", fmt::format("{} requests are open already (--max-num-queued-reqs)", open_.size()),
                "try again later, or on another server");
  if (limits_.max_num_queued_tokens > 0 && num_queued_tokens_ >= limits_.max_num_queued_tokens)
    return fail(ErrorCode::unavailable, "",
                fmt::format("{} prompt tokens are queued already (--max-num-queued-tokens)", num_queued_tokens_),
                "try again later, or on another server");
  const std::uint32_t num_own = tenant == nullptr ? 0 : tenant->num_waiting;
  if (num_own + num_requests > limits_.max_tenant_waiting)
    return fail(ErrorCode::overloaded, "", fmt::format("{} requests of this client are waiting already", num_own), "try again later");
  return {};
}

// Returns an error if the predicted time until the first token exceeds max_ttft_s because of other prompts. If prompts share steps, each
// other prompt delays this one by at most as many tokens as this prompt has, and background prompts delay only background requests;
// otherwise all queued prompts are computed before it.
Result<void> Inbox::check_ttft(std::size_t num_prompt_tokens, bool is_background) const {
  if (limits_.max_ttft_s <= 0.0 || prefill_tokens_per_s_ <= 0.0) return {};
  std::uint64_t num_before = limits_.shares_steps ? 0 : num_queued_tokens_;
  if (limits_.shares_steps)
    for (const auto& [id, other] : open_)
      if (is_background || !other.is_background) num_before += std::min(other.num_prefill_tokens, num_prompt_tokens);
  const double wait_s = static_cast<double>(num_before) / prefill_tokens_per_s_;
  const double late_s = wait_s + static_cast<double>(num_prompt_tokens) / prefill_tokens_per_s_ - limits_.max_ttft_s;
  // A prompt that alone exceeds the limit is accepted when no other prompt is queued.
  if (late_s <= 0.0 || num_before == 0) return {};
  Error error{ErrorCode::overloaded, "",
              fmt::format("the first token is predicted {:.1f} s after the limit of {:.1f} s (--max-ttft)", late_s, limits_.max_ttft_s),
              "try again later, or on another server"};
  error.retry_after_s = static_cast<std::uint32_t>(std::ceil(std::min(std::min(late_s, wait_s), 3600.0)));
  return std::unexpected(std::move(error));
}

Result<void> Inbox::check_room(std::uint32_t num_requests, std::string_view tenant) const {
  const std::lock_guard lock(mutex_);
  const auto known = tenants_.find(tenant);
  return room(num_requests, known == tenants_.end() ? nullptr : &known->second);
}

Result<RequestId> Inbox::submit(Submission submission) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t n = submission.request.n;
  const auto known = tenants_.find(submission.request.tags.tenant);
  if (Result<void> free = room(n, known == tenants_.end() ? nullptr : &known->second); !free)
    return std::unexpected(std::move(free.error()));
  const bool is_background = submission.request.tags.is_background;
  if (is_background && num_waiting_ + n > limits_.max_num_waiting / 2)
    return fail(ErrorCode::overloaded, "",
                fmt::format("{} requests are waiting already, and background requests may fill half of the queue", num_waiting_),
                "try again later, or without service_tier");
  if (Result<void> soon = check_ttft(submission.request.prompt.size(), is_background); !soon)
    return std::unexpected(std::move(soon.error()));
  Tenant& tenant = known == tenants_.end() ? tenants_[submission.request.tags.tenant] : known->second;
  const RequestId id = open(n, tenant);
  Open& first = open_.at(id);
  first.is_background = is_background;
  first.num_prefill_tokens = submission.request.prompt.size();
  num_queued_tokens_ += first.num_prefill_tokens;
  if (submission.request.session) {
    first.is_session = first.takes_input = true;
    first.num_tokens = submission.request.prompt.size();
  }
  submission.id = id;
  if (tenant.num_queued == 0) tenant.served = std::max(tenant.served, served_);
  tenant.submissions.push_back({std::move(submission)});
  ++tenant.num_queued;
  ++num_queued_;
  has_input_ = true;
  wake_.notify_one();
  return id;
}

Result<RequestId> Inbox::fork(Fork fork) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(fork.parent);
  if (found == open_.end())
    return fail(ErrorCode::not_found, "parent", fmt::format("request {} is not open", fork.parent.value), "fork a request before it ends");
  // Rejected, because the core does not have the parent yet, and commands are handled before submissions.
  if (queued(fork.parent) != nullptr)
    return fail(ErrorCode::overloaded, "parent", fmt::format("request {} is still queued for the scheduler", fork.parent.value),
                "try again");
  const Open parent = found->second;
  if (Result<void> free = room(fork.options.n, parent.tenant); !free) return std::unexpected(std::move(free.error()));
  fork.first = open(fork.options.n, *parent.tenant);
  for (std::uint32_t i = 0; parent.is_session && i < fork.options.n; ++i) {
    Open& child = open_.at({fork.first.value + i});
    child.is_session = child.takes_input = true;
    child.num_tokens = parent.num_tokens;
  }
  commands_.emplace_back(fork);
  has_input_ = true;
  wake_.notify_one();
  return fork.first;
}

Result<void> Inbox::append(SessionTokens input, std::uint32_t max_model_len) {
  const std::lock_guard lock(mutex_);
  if (closed_) return refuse_closed();
  const auto found = open_.find(input.id);
  if (found == open_.end() || found->second.ending)
    return fail(ErrorCode::not_found, "session", fmt::format("request {} is not open", input.id.value), "begin another session");
  Open& session = found->second;
  if (!session.takes_input)
    return fail(ErrorCode::invalid_argument, "session", "does not accept input: the request is not a session, or its input has ended",
                "begin a session");
  const std::size_t num_tokens = session.num_tokens + input.tokens.size();
  if (num_tokens >= max_model_len)
    return std::unexpected(overflow_error("session", {.prompt_tokens = num_tokens, .max_model_len = max_model_len}));
  session.num_tokens = num_tokens;
  session.takes_input = !input.tokens.empty();
  if (Queued* const own = queued(input.id))
    own->submission.inputs.push_back(std::move(input.tokens));
  else
    commands_.emplace_back(std::move(input));
  has_input_ = true;
  wake_.notify_one();
  return {};
}

RequestId Inbox::open(std::uint32_t num_requests, Tenant& tenant) {
  const RequestId first{next_id_};
  for (std::uint32_t i = 0; i < num_requests; ++i) open_.emplace(RequestId{next_id_++}, Open{.tenant = &tenant});
  num_waiting_ += num_requests;
  tenant.num_waiting += num_requests;
  tenant.num_open += num_requests;
  return first;
}

// Returns the submission of this request if it has not been taken; null otherwise.
Inbox::Queued* Inbox::queued(RequestId id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return nullptr;
  std::deque<Queued>& submissions = found->second.tenant->submissions;
  const auto behind = std::ranges::upper_bound(submissions, id, {}, [](const Queued& one) { return one.submission.id; });
  if (behind == submissions.begin()) return nullptr;
  Queued& last = *std::prev(behind);
  return id.value - last.submission.id.value < last.submission.request.n ? &last : nullptr;
}

void Inbox::cancel(Queued& queued, FinishReason reason) {
  if (std::exchange(queued.is_cancelled, true)) return;
  --open_.at(queued.submission.id).tenant->num_queued;
  --num_queued_;
  cancelled_.push_back({std::move(queued.submission), reason});
}

void Inbox::end_queued(Queued& queued, FinishCommand ending) {
  if (queued.is_cancelled) return;
  queued.submission.ended.push_back(ending);
  if (queued.submission.ended.size() == queued.submission.request.n) cancel(queued, ending.reason);
}

void Inbox::cancel_all() {
  for (auto& [name, tenant] : tenants_)
    for (Queued& queued : tenant.submissions) cancel(queued, FinishReason::abort);
}

void Inbox::finish(RequestId id, FinishReason reason) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.ending) return;
  found->second.ending = true;
  if (Queued* const own = queued(id))
    end_queued(*own, {id, reason});
  else
    commands_.emplace_back(FinishCommand{id, reason});
  has_input_ = true;
  wake_.notify_one();
}

std::unexpected<Error> Inbox::refuse_closed() {
  return fail(ErrorCode::shutting_down, "", "the engine is shutting down",
              "send the request again after the restart, or to another server");
}

void Inbox::control(Control control) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      const PauseOptions* pausing = std::get_if<PauseOptions>(&control.verb);
      // Queued submissions are cancelled now. If they were taken later, they would begin after the pause has ended all other requests.
      if (pausing != nullptr && pausing->mode == PauseMode::abort) cancel_all();
      commands_.emplace_back(std::move(control));
      has_input_ = true;
      wake_.notify_one();
      return;
    }
  }
  control.answer(refuse_closed());
}

bool Inbox::put(Command& command) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  commands_.push_back(std::move(command));
  has_input_ = true;
  wake_.notify_one();
  return true;
}

void Inbox::take(InboxBatch& intake, std::optional<double> wait_s, std::uint32_t num_free_rows) {
  intake.cancelled.clear();
  intake.commands.clear();
  intake.submissions.clear();
  std::unique_lock lock(mutex_);
  const auto has_news = [this] { return has_input_; };
  if (!wait_s.has_value())
    wake_.wait(lock, has_news);
  else if (*wait_s > 0.0)
    wake_.wait_for(lock, std::chrono::duration<double>(*wait_s), has_news);
  for (; !cancelled_.empty() && intake.cancelled.size() < kMaxEndings; cancelled_.pop_front())
    intake.cancelled.push_back(std::move(cancelled_.front()));
  take_commands(intake.commands);
  take_submissions(intake.submissions, num_free_rows);
  intake.num_left = num_queued_;
  intake.has_more = num_queued_ > 0 || !cancelled_.empty() || !commands_.empty();
  intake.closed = closed_;
  intake.aborting = aborting_;
  // If work is left, the next call must not wait.
  has_input_ = intake.has_more;
}

void Inbox::take_commands(std::vector<Command>& taken) {
  std::size_t num_costly = 0;
  for (; !commands_.empty() && num_costly < kMaxSubmissionsPerTake && taken.size() < kMaxEndings; commands_.pop_front()) {
    num_costly += is_cheap(commands_.front()) ? 0 : 1;
    taken.push_back(std::move(commands_.front()));
  }
}

void Inbox::take_submissions(std::vector<Submission>& taken, std::uint32_t num_free_rows) {
  const std::size_t max_tokens = std::max<std::size_t>(kMaxPromptTokens, limits_.max_num_batched_tokens);
  std::size_t num_tokens = 0;
  std::uint64_t num_requests = 0;
  while (num_queued_ > 0 && (taken.size() < kMaxSubmissionsPerTake || num_requests < num_free_rows)) {
    Tenant& tenant = next_tenant();
    while (tenant.submissions.front().is_cancelled) tenant.submissions.pop_front();
    Submission& next = tenant.submissions.front().submission;
    num_tokens += next.request.prompt.size();
    if (num_tokens > max_tokens && !taken.empty()) break;
    served_ = tenant.served;
    tenant.served += next.request.prompt.size();
    num_requests += next.request.n;
    taken.push_back(std::move(next));
    tenant.submissions.pop_front();
    --tenant.num_queued;
    --num_queued_;
  }
  // The queues of tenants without live submissions contain only cancelled ones.
  for (auto& [name, tenant] : tenants_)
    if (tenant.num_queued == 0) tenant.submissions.clear();
}

// Returns the tenant for which the fewest prompt tokens were taken, among the tenants with queued submissions.
Inbox::Tenant& Inbox::next_tenant() {
  Tenant* next = nullptr;
  for (auto& [name, tenant] : tenants_)
    if (tenant.num_queued > 0 && (next == nullptr || tenant.served < next->served)) next = &tenant;
  QUIRE_CHECK(next != nullptr, "a counted submission is in the queue of its tenant");
  return *next;
}

void Inbox::note_admitted(Open& open) {
  if (!std::exchange(open.waiting, false)) return;
  --num_waiting_;
  --open.tenant->num_waiting;
}

void Inbox::note_prefilled(Open& open) {
  num_queued_tokens_ -= std::exchange(open.num_prefill_tokens, 0);
}

void Inbox::prefilled(std::span<const RequestId> ids, double tokens_per_s) {
  const std::lock_guard lock(mutex_);
  prefill_tokens_per_s_ = tokens_per_s;
  for (const RequestId id : ids)
    if (const auto found = open_.find(id); found != open_.end()) note_prefilled(found->second);
}

std::uint64_t Inbox::num_queued_tokens() const {
  const std::lock_guard lock(mutex_);
  return num_queued_tokens_;
}

void Inbox::admitted(std::span<const RequestId> ids) {
  if (ids.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const RequestId id : ids)
    if (const auto found = open_.find(id); found != open_.end()) note_admitted(found->second);
}

void Inbox::ended(std::span<const RequestId> ids) {
  if (ids.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const RequestId id : ids) {
    const auto found = open_.find(id);
    if (found == open_.end()) continue;
    note_admitted(found->second);
    note_prefilled(found->second);
    --found->second.tenant->num_open;
    open_.erase(found);
  }
  std::erase_if(tenants_, [](const auto& tenant) { return tenant.second.num_open == 0; });
}

void Inbox::wake() {
  const std::lock_guard lock(mutex_);
  has_input_ = true;
  wake_.notify_one();
}

void Inbox::set_done() {
  const std::lock_guard lock(mutex_);
  done_ = true;
  over_.notify_all();
}

void Inbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  has_input_ = true;
  wake_.notify_one();
}

bool Inbox::wait_until_done(double timeout_s) {
  std::unique_lock lock(mutex_);
  return over_.wait_for(lock, std::chrono::duration<double>(timeout_s), [this] { return done_; });
}

void Inbox::abort_rest() {
  const std::lock_guard lock(mutex_);
  aborting_ = true;
  cancel_all();
  has_input_ = true;
  wake_.notify_one();
}

}  // namespace quire
