// The state of a model, and the function that changes it:
//   stopped -> loading      start(), when a request waits and the memory suffices
//   loading -> ready        on_line(), when the process reports its port
//   loading -> stopped      take_ended(): the process has ended; the waiting requests get its error
//   loading -> unloading    stop(): the server shuts down
//   ready -> stopped        take_ended(): a crash; the next request starts the process again, after a pause if it crashes repeatedly
//   ready -> unloading      begin_unload(): idle for too long, chosen for its memory, or requested, always without running requests; or
//                           stop(), also with running requests
//   unloading -> stopped    take_ended()
// After a failed load, no attempt follows for a time that doubles with each failure, up to kMaxBackoff. Requests during that time get the
// last error. The first request after that time begins the next attempt.
//
// Models load in the order in which their first requests began to wait. If the memory of busy models is needed, their new requests wait
// (is_yielding), so that a model with many requests cannot keep another one out.
#include "server/models/model_pool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <charconv>
#include <csignal>
#include <ctime>
#include <utility>

#include "base/format_bytes.h"

namespace quire {

namespace {

constexpr std::chrono::seconds kMaxBackoff{60};
// A process that runs for this time before it crashes is started again without a pause.
constexpr std::chrono::seconds kSoundTime{60};
constexpr std::string_view kReady = "quire serves ", kReadyUrl = " on http://127.0.0.1:", kError = "quire: ";

// Returns the port in the line that `quire serve` prints when it is ready; 0: another line.
std::uint16_t port_of(std::string_view line) {
  const std::size_t url = line.rfind(kReadyUrl);
  if (!line.starts_with(kReady) || url == std::string_view::npos) return 0;
  std::uint16_t port = 0;
  const std::string_view digits = line.substr(url + kReadyUrl.size());
  std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return port;
}

// Returns the pause after a number of earlier failures: 1 s, 2 s, 4 s and so on.
std::chrono::seconds backoff_after(std::uint32_t num_before) {
  return std::min<std::chrono::seconds>(kMaxBackoff, std::chrono::seconds(1U << std::min(num_before, 6U)));
}

}  // namespace

const char* name_of(ModelState state) {
  constexpr const char* kNames[] = {"unloaded", "loading", "loaded", "unloading"};
  return kNames[static_cast<std::size_t>(state)];
}

struct ModelPool::Model {
  const ModelEntry* entry;
  std::size_t index;
  ModelState state = ModelState::stopped;
  std::unique_ptr<ChildProcess> process{};
  std::uint16_t port = 0;
  std::deque<Hold*> waiting{};
  std::uint32_t num_running = 0;
  std::uint64_t last_use = 0;
  bool is_yielding = false;
  std::optional<double> keep_alive_s{};  // of the last request that had one
  Clock::time_point idle_since{}, load_began{}, ready_since{};
  Clock::time_point kill_at = Clock::time_point::max();
  std::uint32_t num_failures = 0;  // loads that failed one after another
  std::uint32_t num_crashes = 0;   // crashes one after another, each soon after the load
  Clock::time_point retry_at{};
  std::string last_error{};  // of the last load, or of the process that loads
  ModelStatus counts{};

  [[nodiscard]] bool is_idle() const { return state == ModelState::ready && num_running == 0 && waiting.empty(); }
  // Returns when an idle model is unloaded.
  [[nodiscard]] Clock::time_point idle_until(std::uint32_t idle_s) const {
    const double seconds = keep_alive_s.value_or(idle_s == 0 ? -1.0 : idle_s);
    constexpr double kMaxSeconds = 1e9;
    if (seconds < 0 || seconds > kMaxSeconds) return Clock::time_point::max();
    return idle_since + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  [[nodiscard]] Error load_error(Clock::time_point now) const {
    const auto left = std::chrono::ceil<std::chrono::seconds>(retry_at - now).count();
    return {ErrorCode::unavailable, "model", fmt::format("'{}' could not be loaded: {}", entry->name, last_error),
            "correct the model or its flags; a later request tries again", static_cast<std::uint32_t>(std::max<std::int64_t>(1, left))};
  }
};

ModelPool::Hold::~Hold() {
  if (!pool_alive_.expired()) pool_->release(*this);
}

void ModelPool::Hold::keep_alive(double seconds) {
  if (!pool_alive_.expired()) pool_->models_[model_]->keep_alive_s = seconds;
}

ModelPool::ModelPool(boost::asio::io_context& io, const ModelsOptions& options, std::vector<std::string> environment, Logger& logger)
    : io_(&io),
      options_(&options),
      environment_(std::move(environment)),
      logger_(&logger),
      child_signals_(io, SIGCHLD),
      timer_(io, Clock::time_point::max()) {
  for (const ModelEntry& entry : options.entries)
    models_.push_back(std::make_unique<Model>(Model{.entry = &entry, .index = models_.size()}));
  wait_for_children();
}

ModelPool::~ModelPool() = default;

void ModelPool::wait_for_children() {
  child_signals_.async_wait([this](boost::system::error_code code, int /*number*/) {
    if (code) return;
    wait_for_children();
    advance();
  });
}

std::shared_ptr<ModelPool::Hold> ModelPool::request(std::size_t index, OnReady on_ready) {
  Model& model = *models_[index];
  const auto now = Clock::now();
  std::shared_ptr<Hold> hold(new Hold(*this, index));
  const auto refused = [&](Error error) {
    on_ready(std::unexpected(std::move(error)));
    return hold;
  };
  if (is_refusing_) return refused({ErrorCode::shutting_down, "", "the server is shutting down", "send the request to another server"});
  if (model.state == ModelState::stopped && model.num_failures > 0 && now < model.retry_at) return refused(model.load_error(now));
  if (model.waiting.size() >= options_->max_waiting)
    return refused({ErrorCode::overloaded, "model",
                    fmt::format("{} requests already wait for '{}'", model.waiting.size(), model.entry->name),
                    "try again, or raise max-waiting"});
  hold->on_ready_ = std::move(on_ready);
  hold->since_ = now;
  hold->until_ = now + std::chrono::seconds(options_->max_wait_s);
  model.waiting.push_back(hold.get());
  advance();
  return hold;
}

void ModelPool::release(Hold& hold) {
  Model& model = *models_[hold.model_];
  if (std::exchange(hold.is_running_, false)) {
    --model.num_running;
    model.idle_since = Clock::now();
  } else {
    std::erase(model.waiting, &hold);
  }
  advance();
}

bool ModelPool::unload(std::size_t index) {
  Model& model = *models_[index];
  if (!model.is_idle()) return false;
  begin_unload(model, "requested");
  advance();
  return true;
}

void ModelPool::refuse_waiting() {
  is_refusing_ = true;
  for (const auto& model : models_)
    refuse(*model, {ErrorCode::shutting_down, "", "the server is shutting down", "send the request to another server"});
}

void ModelPool::stop(std::chrono::milliseconds timeout, std::function<void()> on_end) {
  refuse_waiting();
  on_end_ = std::move(on_end);
  for (const auto& model : models_) {
    if (!model->process) continue;
    if (model->state != ModelState::unloading) begin_unload(*model, "shutdown");
    model->kill_at = Clock::now() + timeout;
  }
  advance();
}

// A callback may call request() or destroy a hold, which call this function again. The outer call then repeats its work.
void ModelPool::advance() {
  must_advance_again_ = true;
  if (is_advancing_) return;
  is_advancing_ = true;
  while (std::exchange(must_advance_again_, false)) {
    const auto now = Clock::now();
    for (const auto& model : models_) take_ended(*model);
    refuse_late(now);
    load_waiting(now);
    for (const auto& model : models_) run_waiting(*model);
    unload_idle(now);
    kill_late(now);
  }
  is_advancing_ = false;
  set_timer();
  const bool has_ended = std::ranges::none_of(models_, [](const auto& model) { return model->process != nullptr; });
  if (on_end_ && has_ended) std::exchange(on_end_, nullptr)();
}

void ModelPool::take_ended(Model& model) {
  if (!model.process) return;
  const auto now = Clock::now();
  const auto end = model.process->take_end();
  if (!end) return;
  const ModelState before = std::exchange(model.state, ModelState::stopped);
  model.process.reset();
  model.port = 0;
  model.kill_at = Clock::time_point::max();
  model.keep_alive_s.reset();
  if (before == ModelState::loading) {
    set_load_failure(model, model.last_error.empty() ? fmt::format("its process ended with {}", *end) : model.last_error);
  } else if (before == ModelState::ready) {
    take_crash(model, now);
    logger_->write(LogLevel::error, "model_crashed", {{"model", model.entry->name}, {"end", *end}});
  } else {
    ++model.counts.unloads_total;
    logger_->write(LogLevel::info, "model_unloaded", {{"model", model.entry->name}});
  }
}

void ModelPool::take_crash(Model& model, Clock::time_point now) {
  ++model.counts.crashes_total;
  if (now - model.ready_since >= kSoundTime) model.num_crashes = 0;
  if (model.num_crashes > 0) model.retry_at = now + backoff_after(model.num_crashes - 1);
  ++model.num_crashes;
}

void ModelPool::set_load_failure(Model& model, std::string why) {
  ++model.counts.load_failures_total;
  model.last_error = std::move(why);
  model.retry_at = Clock::now() + backoff_after(model.num_failures++);
  logger_->write(LogLevel::error, "model_load_failed", {{"model", model.entry->name}, {"why", model.last_error}});
  refuse(model, model.load_error(Clock::now()));
}

void ModelPool::refuse(Model& model, const Error& error) {
  for (Hold* hold : std::exchange(model.waiting, {})) std::exchange(hold->on_ready_, nullptr)(std::unexpected(error));
}

void ModelPool::refuse_late(Clock::time_point now) {
  for (const auto& model : models_)
    while (!model->waiting.empty() && model->waiting.front()->until_ <= now) {
      Hold* const late = model->waiting.front();
      model->waiting.pop_front();
      std::exchange(late->on_ready_, nullptr)(std::unexpected(
          Error{ErrorCode::unavailable, "model", fmt::format("'{}' was not ready within {} s", model->entry->name, options_->max_wait_s),
                model->state == ModelState::loading ? "try again: the model is still loading"
                                                    : "try again later: the memory is used by models with running requests",
                1}));
    }
}

// Returns the model whose requests have waited longest, among models that are not loaded and not in `done`. A model that pauses after
// crashes cannot start yet, so it must not take the memory of other models.
ModelPool::Model* ModelPool::next_waiting(Clock::time_point now, const std::vector<Model*>& done) {
  Model* next = nullptr;
  for (const auto& model : models_) {
    if (model->waiting.empty() || model->state == ModelState::ready || model->state == ModelState::loading) continue;
    if (model->retry_at > now || std::ranges::find(done, model.get()) != done.end()) continue;
    if (next == nullptr || model->waiting.front()->since_ < next->waiting.front()->since_) next = model.get();
  }
  return next;
}

std::vector<ModelPool::Model*> ModelPool::residents() {
  std::vector<Model*> all;
  for (const auto& model : models_)
    if (model->process) all.push_back(model.get());
  return all;
}

void ModelPool::load_waiting(Clock::time_point now) {
  for (const auto& model : models_) model->is_yielding = false;
  const MemoryLimits limits{options_->memory_bytes, options_->max_loaded};
  std::vector<Model*> done, reserved;  // reserved: models that start next
  while (Model* const model = next_waiting(now, done)) {
    done.push_back(model);
    std::vector<ResidentModel> present, later;  // processes now, and processes that stay, with the reservations
    std::vector<Model*> later_models;
    for (Model* const other : residents()) {
      const bool serves_first = !other->waiting.empty() && other->waiting.front()->since_ <= model->waiting.front()->since_;
      const ResidentModel resident{other->entry->memory_bytes, other->state == ModelState::loading || serves_first, !other->is_idle(),
                                   other->last_use};
      present.push_back(resident);
      if (other->state == ModelState::unloading) continue;
      later.push_back(resident);
      later_models.push_back(other);
    }
    for (Model* const other : reserved) {
      later.push_back({other->entry->memory_bytes, true, true, 0});
      later_models.push_back(other);
    }
    const auto victims = choose_victims(later, model->entry->memory_bytes, limits);
    if (!victims) {
      // It may fit when the models that load now are ready.
      if (fits({}, model->entry->memory_bytes, limits))
        reserved.push_back(model);
      else
        refuse(*model, {ErrorCode::unavailable, "model",
                        fmt::format("'{}' needs about {} of memory, but all models together may use {}", model->entry->name,
                                    format_bytes(model->entry->memory_bytes), format_bytes(limits.bytes)),
                        "raise --models-memory, or lower the model's --kv-cache-memory", 60});
      continue;
    }
    reserved.push_back(model);
    for (const std::size_t victim : *victims) {
      Model& leaving = *later_models[victim];
      leaving.is_yielding = true;
      if (leaving.num_running == 0) begin_unload(leaving, "memory");
    }
    const bool may_start = model->state == ModelState::stopped && victims->empty() && fits(present, model->entry->memory_bytes, limits);
    if (may_start) start(*model);
  }
}

void ModelPool::start(Model& model) {
  const ModelEntry& entry = *model.entry;
  ChildProcess::Command command{options_->program, {"serve"}, environment_};
  command.environment.insert(command.environment.end(), entry.environment.begin(), entry.environment.end());
  command.arguments.insert(command.arguments.end(), entry.arguments.begin(), entry.arguments.end());
  command.arguments.insert(command.arguments.end(), {"--host=127.0.0.1", "--port=0", "--trusted-proxy=127.0.0.1", "--drain-timeout-ms=1000",
                                                     fmt::format("--supervised={}", ::getpid())});
  command.arguments.push_back(fmt::format("--served-model-name={}", entry.name));
  for (const std::string& alias : entry.aliases) command.arguments.push_back(fmt::format("--served-model-name={}", alias));
  model.last_error.clear();
  model.load_began = Clock::now();
  logger_->write(LogLevel::info, "model_loading", {{"model", entry.name}});
  auto process = ChildProcess::start(*io_, command, [this, &model](std::string_view line) { on_line(model, line); });
  if (!process) return set_load_failure(model, process.error().to_string());
  model.process = *std::move(process);
  model.state = ModelState::loading;
  model.kill_at = model.load_began + std::chrono::seconds(options_->max_wait_s);
}

void ModelPool::on_line(Model& model, std::string_view line) {
  if (model.state != ModelState::loading) return;
  if (line.starts_with(kError)) model.last_error = line.substr(kError.size());
  model.port = port_of(line);
  if (model.port == 0) return;
  model.state = ModelState::ready;
  model.kill_at = Clock::time_point::max();
  model.num_failures = 0;
  model.idle_since = model.ready_since = Clock::now();
  const double seconds = std::chrono::duration<double>(model.idle_since - model.load_began).count();
  ++model.counts.loads_total;
  model.counts.load_seconds_total += seconds;
  model.counts.last_load_seconds = seconds;
  logger_->write(LogLevel::info, "model_loaded", {{"model", model.entry->name}, {"seconds", seconds}});
  // Not called here, because the process's object may not be destroyed while it reports a line.
  boost::asio::post(*io_, [this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) advance();
  });
}

void ModelPool::run_waiting(Model& model) {
  if (model.state != ModelState::ready || model.is_yielding) return;
  while (!model.waiting.empty()) {
    Hold* const hold = model.waiting.front();
    model.waiting.pop_front();
    hold->is_running_ = true;
    ++model.num_running;
    model.last_use = ++num_uses_;
    std::exchange(hold->on_ready_, nullptr)(model.port);
  }
}

void ModelPool::begin_unload(Model& model, const char* why) {
  logger_->write(LogLevel::info, "model_unloading", {{"model", model.entry->name}, {"why", why}});
  model.state = ModelState::unloading;
  model.kill_at = Clock::now() + options_->unload_time;
  model.process->send_signal(SIGTERM);
}

void ModelPool::unload_idle(Clock::time_point now) {
  for (const auto& model : models_)
    if (model->is_idle() && model->idle_until(options_->idle_s) <= now) begin_unload(*model, "idle");
}

void ModelPool::kill_late(Clock::time_point now) {
  for (const auto& model : models_) {
    if (!model->process || model->kill_at > now) continue;
    if (model->state == ModelState::loading) model->last_error = fmt::format("it was not ready within {} s", options_->max_wait_s);
    model->process->send_signal(SIGKILL);
    model->kill_at = Clock::time_point::max();
  }
}

void ModelPool::set_timer() {
  auto next = Clock::time_point::max();
  for (const auto& model : models_) {
    if (!model->waiting.empty()) next = std::min(next, model->waiting.front()->until_);
    if (!model->waiting.empty() && model->state == ModelState::stopped && model->retry_at > Clock::now())
      next = std::min(next, model->retry_at);
    if (model->is_idle()) next = std::min(next, model->idle_until(options_->idle_s));
    if (model->process) next = std::min(next, model->kill_at);
  }
  timer_.expires_at(next);
  if (next == Clock::time_point::max()) return;
  timer_.async_wait([this](boost::system::error_code code) {
    if (!code) advance();
  });
}

ModelStatus ModelPool::status(std::size_t index) const {
  const Model& model = *models_[index];
  ModelStatus status = model.counts;
  status.state = model.state;
  status.port = model.state == ModelState::ready ? model.port : 0;
  status.num_running = model.num_running;
  status.num_waiting = static_cast<std::uint32_t>(model.waiting.size());
  const auto until = model.idle_until(options_->idle_s);
  if (model.state == ModelState::ready && until != Clock::time_point::max()) {
    const auto left = std::chrono::duration_cast<std::chrono::seconds>(until - (model.num_running > 0 ? model.idle_since : Clock::now()));
    status.expires_s = std::time(nullptr) + std::max<std::int64_t>(0, left.count());
  }
  return status;
}

}  // namespace quire
