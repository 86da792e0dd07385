#include "engine/requests/grammar_thread.h"

#include <algorithm>
#include <ranges>

#include "base/thread_nice.h"

namespace quire {
namespace {

constexpr std::size_t kMaxCachedMatchers = 64;
constexpr std::size_t kMaxCachedBytes = std::size_t{8} << 20;  // limit for the text of the cached grammars

bool are_alike(const StructuredOutput& a, const StructuredOutput& b) {
  return a.kind == b.kind && a.text == b.text;
}

}  // namespace

GrammarThread::GrammarThread(std::shared_ptr<const TokenizerSpec> tokenizer, std::uint32_t vocab_size)
    : tokenizer_(std::move(tokenizer)), vocab_size_(vocab_size) {}

GrammarThread::~GrammarThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void GrammarThread::put(RequestId id, GrammarSpec wanted) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({id, std::move(wanted)});
  }
  changed_.notify_one();
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void GrammarThread::forget(RequestId id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [id](const Job& job) { return job.id == id; });
}

std::vector<GrammarThread::Compiled> GrammarThread::take() {
  if (!thread_.joinable()) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(compiled_, {});
}

void GrammarThread::run() {
  set_thread_batch_policy(kBackgroundNice);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    Result<GrammarMatcher> matcher = compile(job.wanted);
    lock.lock();
    compiled_.push_back({job.id, std::move(matcher)});
    lock.unlock();
    if (notify_) notify_();
    lock.lock();
  }
}

Result<GrammarMatcher> GrammarThread::compile(const GrammarSpec& wanted) {
  const auto known = std::ranges::find_if(cache_, [&](const CachedMatcher& kept) { return are_alike(*kept.wanted, *wanted); });
  if (known != cache_.end()) {
    cache_.splice(cache_.begin(), cache_, known);
    return cache_.front().matcher.clone();
  }
  if (compiler_ == nullptr) {
    auto created = GrammarCompiler::create(*tokenizer_, vocab_size_);
    if (!created) return std::unexpected(std::move(created.error()));
    compiler_ = *std::move(created);
  }
  Result<GrammarMatcher> matcher = compiler_->compile(*wanted);
  if (matcher) keep(wanted, *matcher);
  return matcher;
}

void GrammarThread::keep(const GrammarSpec& wanted, const GrammarMatcher& matcher) {
  cache_.push_front({wanted, matcher.clone()});
  num_cached_bytes_ += wanted->text.size();
  while (cache_.size() > kMaxCachedMatchers || num_cached_bytes_ > kMaxCachedBytes) {
    num_cached_bytes_ -= cache_.back().wanted->text.size();
    cache_.pop_back();
  }
}

}  // namespace quire
