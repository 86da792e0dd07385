// Implements quire/local_api.h: the handlers of the server on a thread without sockets. Callers post tasks to this thread and wait for its
// answers in LocalCall::State. An exchange is a call that this thread handles; it belongs to this thread, as a Connection does.
//
// A call is posted (LocalApi::call) -> started (advance, when the handler has an answer or a response) -> ended (advance, cancel, or stop).
#include "quire/local_api.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>

#include "server/pool_options.h"
#include "server/request/served_model.h"
#include "server/router.h"

namespace quire {

namespace asio = boost::asio;

namespace {

// Posts tasks to the thread of a LocalApi, until it is closed. Thread-safe, and may outlive the LocalApi.
class LocalTasks {
 public:
  explicit LocalTasks(asio::io_context& io) : io_(&io) {}
  // Returns false, and does not post the task, after close().
  bool post(std::function<void()> task) {
    const std::scoped_lock lock(mutex_);
    if (io_ == nullptr) return false;
    asio::post(*io_, std::move(task));
    return true;
  }
  // Posts the last task. Returns false if close() was called before.
  bool close(std::function<void()> last) {
    const std::scoped_lock lock(mutex_);
    if (io_ == nullptr) return false;
    asio::post(*std::exchange(io_, nullptr), std::move(last));
    return true;
  }

 private:
  std::mutex mutex_;
  asio::io_context* io_;  // null: closed; guarded by mutex_
};

template <class Predicate>
bool wait_for_state(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, std::optional<std::chrono::milliseconds> timeout,
                    Predicate predicate) {
  if (timeout) return changed.wait_for(lock, *timeout, predicate);
  changed.wait(lock, predicate);
  return true;
}

}  // namespace

// Written by the thread of the LocalApi, read by callers.
struct LocalCall::State {
  explicit State(std::string name) : id(std::move(name)) {}

  void write(unsigned status, std::string_view content_type, std::string bytes, LocalCallEnd end) {
    const std::scoped_lock lock(mutex);
    is_started = true;
    unread.status = status;
    unread.content_type = content_type;
    unread.bytes += bytes;
    unread.end = end;
    changed.notify_all();
  }
  void start() {
    const std::scoped_lock lock(mutex);
    is_started = true;
    changed.notify_all();
  }
  void end(LocalCallEnd how) {
    const std::scoped_lock lock(mutex);
    if (unread.end != LocalCallEnd::none) return;
    is_started = true;
    unread.end = how;
    changed.notify_all();
  }

  const std::string id;
  std::function<void()> post_cancel;  // set before the call is posted; callable on any thread, and after the LocalApi is gone
  std::mutex mutex;                   // guards the members below
  std::condition_variable changed;
  bool is_started = false;
  LocalReplyPart unread;
};

LocalCall::~LocalCall() {
  cancel();
}

const std::string& LocalCall::id() const {
  return state_->id;
}

bool LocalCall::wait_started(std::optional<std::chrono::milliseconds> timeout) const {
  std::unique_lock lock(state_->mutex);
  return wait_for_state(state_->changed, lock, timeout, [this] { return state_->is_started; });
}

bool LocalCall::wait_ended(std::optional<std::chrono::milliseconds> timeout) const {
  std::unique_lock lock(state_->mutex);
  return wait_for_state(state_->changed, lock, timeout, [this] { return state_->unread.end != LocalCallEnd::none; });
}

LocalReplyPart LocalCall::take(std::optional<std::chrono::milliseconds> timeout) {
  std::unique_lock lock(state_->mutex);
  LocalReplyPart& unread = state_->unread;
  wait_for_state(state_->changed, lock, timeout, [&] { return !unread.bytes.empty() || unread.end != LocalCallEnd::none; });
  LocalReplyPart part = unread;
  unread.bytes.clear();
  return part;
}

void LocalCall::cancel() {
  if (wait_ended(std::chrono::milliseconds(0))) return;
  state_->post_cancel();
}

// Members are destroyed in reverse order: first the job pool, then the io_context with its tasks, which use the members before it.
struct LocalApi::Impl {
  using State = LocalCall::State;
  // A call whose reply is not complete.
  struct Exchange {
    std::shared_ptr<State> state;
    std::string path;
    Reply reply;
    bool has_started = false;
  };

  Impl(Engine& engine, std::unique_ptr<ServedModel> served, ServerOptions given, Logger& log)
      : options(std::move(given)),
        model(std::move(served)),
        client(engine, [this](EngineClient::Task task) { asio::post(io, std::move(task)); }),
        router(client, *model, options, log, [this](JobPool::Lane lane, JobPool::Job job) { return jobs.submit(lane, std::move(job)); }) {}

  void run();
  void begin(const std::shared_ptr<State>& state, HttpRequest request);
  void advance(const State* key);
  [[nodiscard]] bool advance_answer(Exchange& exchange, AnswerSource& answer);
  void respond(const Exchange& exchange, HttpResponse response);
  void drop(const State* key, LocalCallEnd how);
  void drop_all();

  const ServerOptions options;
  std::unique_ptr<ServedModel> model;
  EngineClient client;
  Router router;
  std::unordered_map<const State*, Exchange> exchanges;
  const std::uint64_t run_id = (std::uint64_t{std::random_device()()} << 32) | std::random_device()();
  std::atomic<std::uint32_t> num_calls{0};
  asio::io_context io{1};
  JobPool jobs{io, pool_options(options)};
  std::shared_ptr<LocalTasks> tasks = std::make_shared<LocalTasks>(io);
  std::mutex join_mutex;
  std::thread thread;  // declared last because it uses all other members
};

void LocalApi::Impl::run() {
  const asio::executor_work_guard<asio::io_context::executor_type> work(io.get_executor());
  for (bool has_ended = false; !has_ended;) {
    try {
      io.run();
      has_ended = true;
    } catch (const std::exception&) {
      // The task that threw has failed; the other tasks continue.
      router.log().failed({}, std::current_exception());
    }
  }
}

void LocalApi::Impl::begin(const std::shared_ptr<State>& state, HttpRequest request) {
  const State* const key = state.get();
  Exchange& exchange = exchanges.emplace(key, Exchange{state, std::string(request.path()), {}}).first->second;
  const Wake wake = [this, key, weak = std::weak_ptr(state)] {
    // Posted, because an answer must not be destroyed while it calls `wake`.
    if (const auto held = weak.lock()) asio::post(io, [this, key, held] { advance(key); });
  };
  if (auto early = router.answer_early(request))
    exchange.reply.response = *std::move(early);
  else
    exchange.reply = router.handle(request, wake);
  advance(key);
}

// Passes on what is new in the reply. Ends the exchange if the reply is complete.
void LocalApi::Impl::advance(const State* key) {
  const auto found = exchanges.find(key);
  if (found == exchanges.end()) return;
  Exchange& exchange = found->second;
  while (exchange.reply.pending != nullptr && exchange.reply.pending->reply) {
    const std::shared_ptr<PendingReply> pending = std::move(exchange.reply.pending);
    exchange.reply = *std::move(pending->reply);
  }
  if (exchange.reply.pending != nullptr) return;
  if (exchange.reply.answer != nullptr && !advance_answer(exchange, *exchange.reply.answer)) return;
  if (exchange.reply.answer == nullptr) respond(exchange, std::move(exchange.reply.response));
  exchanges.erase(found);
}

// Returns whether the answer is complete.
bool LocalApi::Impl::advance_answer(Exchange& exchange, AnswerSource& answer) {
  if (!std::exchange(exchange.has_started, true)) {
    if (const std::string ignored = answer.ignored_fields(); !ignored.empty()) router.log().ignored(exchange.state->id, ignored);
    exchange.state->start();
  }
  const bool is_complete = answer.finished();
  if (answer.is_stream() && !answer.refused()) {
    if (answer.may_be_refused()) return false;
    std::string events = answer.take_events();
    if (!events.empty() || is_complete)
      exchange.state->write(200, answer.stream_content_type(), std::move(events),
                            is_complete ? LocalCallEnd::complete : LocalCallEnd::none);
  } else if (is_complete) {
    respond(exchange, answer.take_response());
  }
  return is_complete;
}

void LocalApi::Impl::respond(const Exchange& exchange, HttpResponse response) {
  response = router.format_for_path(exchange.path, std::move(response));
  exchange.state->write(response.status, response.content_type, std::move(response.body), LocalCallEnd::complete);
}

// Ends a call whose reply is not complete. Does nothing after the end.
void LocalApi::Impl::drop(const State* key, LocalCallEnd how) {
  const auto found = exchanges.find(key);
  if (found == exchanges.end()) return;
  const Exchange exchange = std::move(found->second);
  exchanges.erase(found);
  if (exchange.reply.pending != nullptr) exchange.reply.pending->cancelled = true;
  if (exchange.reply.answer != nullptr) exchange.reply.answer->abort();
  exchange.state->end(how);
}

void LocalApi::Impl::drop_all() {
  router.drain();
  while (!exchanges.empty()) drop(exchanges.begin()->first, LocalCallEnd::stopped);
  io.stop();
}

LocalApi::LocalApi(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

LocalApi::~LocalApi() {
  stop();
}

Result<std::unique_ptr<LocalApi>> LocalApi::create(Engine& engine, const ServerOptions& options, Logger& logger) {
  if (const auto valid = options.validate(); !valid) return std::unexpected(valid.error());
  auto model = ServedModel::create(engine, options);
  if (!model) return std::unexpected(model.error());
  std::unique_ptr<LocalApi> api(new LocalApi(std::make_unique<Impl>(engine, *std::move(model), options, logger)));
  api->impl_->thread = std::thread([impl = api->impl_.get()] { impl->run(); });
  return api;
}

Result<std::unique_ptr<LocalCall>> LocalApi::call(LocalRequest request) {
  Impl* const impl = impl_.get();
  HttpRequest http;
  http.id = fmt::format("{:016x}{:08x}", impl->run_id, impl->num_calls++);
  http.client = http.id;  // calls do not share a client's part of the job pool
  http.method = std::move(request.method);
  http.target = std::move(request.target);
  http.content_type = "application/json";
  http.authorization = impl->options.api_key.empty() ? "" : "Bearer " + impl->options.api_key;
  http.has_body = !request.body.empty();
  http.body = std::move(request.body);
  http.is_local = true;
  const auto state = std::make_shared<LocalCall::State>(http.id);
  // Weak, because the state owns this function.
  state->post_cancel = [impl, tasks = impl->tasks, weak = std::weak_ptr(state)] {
    if (const auto held = weak.lock()) tasks->post([impl, held] { impl->drop(held.get(), LocalCallEnd::cancelled); });
  };
  if (!impl->tasks->post([impl, state, http = std::move(http)]() mutable { impl->begin(state, std::move(http)); }))
    return fail(ErrorCode::shutting_down, "", "the engine is shutting down", "create another engine");
  return std::unique_ptr<LocalCall>(new LocalCall(state));
}

void LocalApi::stop() {
  impl_->tasks->close([impl = impl_.get()] { impl->drop_all(); });
  const std::scoped_lock lock(impl_->join_mutex);
  if (impl_->thread.joinable()) impl_->thread.join();
}

std::string LocalApi::chat_problem() const {
  return impl_->model->chat_problem();
}

}  // namespace quire
