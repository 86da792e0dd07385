// Uses three connection pools for one store, so that ask() never waits for stores and loads. The engine's threads call submit(), ask() and
// forget(), which return immediately. The threads of the pools copy, seal and verify the bytes. A job ends exactly once, whatever the store
// replies.
#include "runtime/remote/remote_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::uint32_t kTransfersInFlight = 4;                    // blocks in flight per connection
constexpr std::uint32_t kLookupsInFlight = 1024;                   // looked-up keys in flight per connection
constexpr std::uint64_t kMostOverhead = std::uint64_t{64} << 10U;  // bytes of a reply in addition to a block's value
constexpr OffloadKey kProbeKey{};

RemoteConnectionPoolOptions pool_options(const RemoteStoreOptions& options, std::shared_ptr<const NetTls> tls, std::uint64_t block_bytes) {
  return {.address = options.address,
          .tls = std::move(tls),
          .depth = kTransfersInFlight,
          .timeout_s = options.timeout_s,
          .max_reply_bytes = remote_value_bytes(block_bytes) + kMostOverhead,
          .yields_cores = false};
}

RemoteConnectionPoolOptions lookup_pool_options(RemoteConnectionPoolOptions options) {
  options.num_connections = 1;
  options.depth = kLookupsInFlight;
  options.max_reply_bytes = kMostOverhead;
  return options;
}

RemoteConnectionPoolOptions store_pool_options(RemoteConnectionPoolOptions options, bool yields_cores) {
  options.yields_cores = yields_cores;
  options.max_reply_bytes = kMostOverhead;
  return options;
}

bool is_answer(const RemoteReply& reply) {
  return reply.kind != RemoteReplyKind::lost && reply.kind != RemoteReplyKind::unsent && reply.kind != RemoteReplyKind::error;
}

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text));
}

}  // namespace

Result<std::unique_ptr<RemoteStore>> RemoteStore::open(RemoteStoreOptions options) {
  QUIRE_CHECK(!options.group_bytes.empty() && options.ttl_s > 0, "group_bytes is not empty, and ttl_s is at least 1");
  if (Result<void> checked = check_remote_client(); !checked) return std::unexpected(std::move(checked.error()));
  auto tls = options.address.is_tls ? NetTls::create(options.address.ca_file, "kv_remote_ca") : std::make_shared<const NetTls>();
  if (!tls) return std::unexpected(std::move(tls.error()));
  return std::unique_ptr<RemoteStore>(new RemoteStore(std::move(options), *std::move(tls)));
}

RemoteStore::RemoteStore(RemoteStoreOptions options, std::shared_ptr<const NetTls> tls)
    : options_(std::move(options)),
      block_bytes_(std::ranges::max(options_.group_bytes)),
      keys_(options_.secret, options_.fingerprint),
      store_codec_(options_.secret),
      load_codec_(options_.secret),
      stores_(std::make_unique<RemoteConnectionPool>(store_pool_options(pool_options(options_, tls, block_bytes_), options_.yields_cores))),
      loads_(std::make_unique<RemoteConnectionPool>(pool_options(options_, tls, block_bytes_))),
      asks_(std::make_unique<RemoteConnectionPool>(lookup_pool_options(pool_options(options_, std::move(tls), block_bytes_)))) {}

RemoteStore::~RemoteStore() = default;

void RemoteStore::submit(TierJob job) {
  QUIRE_CHECK(job.bytes > 0 && job.bytes <= block_bytes_, "a job has between 1 byte and block_bytes() bytes");
  std::string key = keys_.key_of(job.name);
  const auto shared = std::make_shared<TierJob>(std::move(job));
  if (shared->verb == TierJob::Verb::load)
    submit_load(shared, std::move(key));
  else
    submit_store(shared, std::move(key));
}

void RemoteStore::submit_store(const std::shared_ptr<TierJob>& job, std::string key) {
  const auto write = [this, job, key](std::vector<std::string>& words) {
    std::string value(remote_value_bytes(job->bytes), '\0');
    const std::span<std::byte> bytes = bytes_of(value);
    if (is_untrusted(key) || !job->copy(bytes.subspan(kRemoteHeaderBytes, job->bytes))) return false;
    store_codec_.seal(key, bytes);
    words = {"SET", key};
    words.push_back(std::move(value));
    words.insert(words.end(), {"EX", std::to_string(options_.ttl_s)});
    return true;
  };
  const auto over = [this, job](const RemoteReply& reply) {
    if (reply.kind == RemoteReplyKind::unsent) return end(*job, TierOutcome::cancelled);
    const bool is_stored = reply.kind == RemoteReplyKind::status && reply.text == "OK";
    end(*job, is_stored ? TierOutcome::done : TierOutcome::failed);
  };
  stores_->submit({.key = std::move(key), .write = write, .over = over});
}

void RemoteStore::submit_load(const std::shared_ptr<TierJob>& job, std::string key) {
  count_.load_started();
  const auto write = [key](std::vector<std::string>& words) {
    words = {"GET", key};
    return true;
  };
  const auto over = [this, job, key](const RemoteReply& reply) {
    const TierOutcome outcome = verify_loaded(*job, key, reply);
    if (outcome == TierOutcome::done) renew(key);
    end(*job, outcome);
  };
  loads_->submit({.key = std::move(key), .write = write, .over = over});
}

TierOutcome RemoteStore::verify_loaded(const TierJob& job, const std::string& key, const RemoteReply& reply) {
  if (!is_answer(reply)) return TierOutcome::failed;
  count_.read(reply.bytes.size());
  if (reply.kind == RemoteReplyKind::nil || is_untrusted(key)) return TierOutcome::absent;
  const auto block = load_codec_.open(key, reply.bytes, job.bytes);
  if (!block) return TierOutcome::refused;
  return job.copy(*block) ? TierOutcome::done : TierOutcome::cancelled;
}

// Renews the time to live of a loaded block. If the command fails, the block expires.
void RemoteStore::renew(const std::string& key) {
  const auto write = [key, ttl = std::to_string(options_.ttl_s)](std::vector<std::string>& words) {
    words = {"EXPIRE", key, ttl};
    return true;
  };
  stores_->submit({.key = key, .write = write, .over = [](const RemoteReply&) {}});
}

void RemoteStore::forget(const OffloadKey& name) {
  remove(keys_.key_of(name));
}

void RemoteStore::mark_untrusted(const OffloadKey& name) {
  std::string key = keys_.key_of(name);
  {
    const std::lock_guard lock(mutex_);
    untrusted_.insert(key);
  }
  remove(std::move(key));
}

bool RemoteStore::is_untrusted(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return !untrusted_.empty() && untrusted_.contains(key);
}

// Removes the value of a key. Commands with the same key take effect in order because they use one connection (remote_connection_pool.h).
void RemoteStore::remove(std::string key) {
  const auto write = [key](std::vector<std::string>& words) {
    words = {"UNLINK", key};
    return true;
  };
  stores_->submit({.key = std::move(key), .write = write, .over = [](const RemoteReply&) {}});
}

void RemoteStore::end(const TierJob& job, TierOutcome outcome) {
  count_.ended(job, outcome);
  job.over(outcome);
}

// State of one ask(). After the commands were submitted, only the thread of `asks_` uses it.
struct RemoteStore::Lookup {
  Answer answer;
  std::size_t num_left = 0;
  bool was_sent = true;
  std::function<bool()> is_wanted;
  std::function<void(const Answer&)> over;
};

void RemoteStore::ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) {
  QUIRE_CHECK(!names.empty(), "a question has at least one offload key");
  const auto question = std::make_shared<Lookup>();
  question->answer.has.resize(names.size());
  question->num_left = names.size();
  question->is_wanted = std::move(is_wanted);
  question->over = std::move(over);
  count_.asked(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string key = keys_.key_of(names[i]);
    const auto wanted = static_cast<std::int64_t>(remote_value_bytes(options_.group_bytes.at(names[i].group)));
    const auto write = [question, key](std::vector<std::string>& words) {
      words = {"STRLEN", key};
      return question->is_wanted();
    };
    const auto take = [this, question, i, wanted, key](const RemoteReply& reply) {
      question->answer.has[i] = reply.kind == RemoteReplyKind::integer && reply.integer == wanted && !is_untrusted(key);
      question->answer.is_whole &= reply.kind == RemoteReplyKind::integer;
      question->was_sent &= reply.kind != RemoteReplyKind::unsent;
      if (--question->num_left > 0) return;
      if (question->was_sent) count_.found(static_cast<std::uint64_t>(std::ranges::count(question->answer.has, true)));
      question->over(question->answer);
    };
    asks_->submit({.key = std::move(key), .write = write, .over = take});
  }
}

void RemoteStore::probe_loads() {
  count_.probe_loads(*this, options_.group_bytes, {kProbeKey});
}

std::string RemoteStore::last_problem() const {
  for (const RemoteConnectionPool* const pool : {loads_.get(), stores_.get(), asks_.get()})
    if (std::string problem = pool->last_problem(); !problem.empty()) return problem;
  return {};
}

}  // namespace quire
