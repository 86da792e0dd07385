// Three lines to one store, so that neither stores nor the blocks of a load stand before the question whether there is anything to load.
// submit(), ask() and forget() come from the engine's threads and return at once; the bytes are copied, sealed and verified by the lines'
// threads. A job ends once, whatever the store does.
#include "runtime/remote/remote_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::uint32_t kMovedAtOnce = 4;                          // blocks on each connection
constexpr std::uint32_t kAskedAtOnce = 1024;                       // names on theirs
constexpr std::uint64_t kMostOverhead = std::uint64_t{64} << 10U;  // of a reply beside a block's value
constexpr OffloadKey kNobodysName{};

RemoteLineOptions line_options(const RemoteStoreOptions& options, std::shared_ptr<const NetTls> tls, std::uint64_t block_bytes) {
  return {.address = options.address,
          .tls = std::move(tls),
          .depth = kMovedAtOnce,
          .patience_s = options.patience_s,
          .max_reply_bytes = remote_value_bytes(block_bytes) + kMostOverhead,
          .gives_way = false};
}

RemoteLineOptions asking_line(RemoteLineOptions options) {
  options.num_connections = 1;
  options.depth = kAskedAtOnce;
  options.max_reply_bytes = kMostOverhead;
  return options;
}

RemoteLineOptions storing_line(RemoteLineOptions options, bool gives_way) {
  options.gives_way = gives_way;
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
  QUIRE_CHECK(!options.group_bytes.empty() && options.ttl_s > 0, "a store of blocks, for some time");
  if (Result<void> checked = check_remote_client(); !checked) return std::unexpected(std::move(checked.error()));
  auto tls = options.address.is_tls ? NetTls::create(options.address.ca_file, "kv_remote_ca") : std::make_shared<const NetTls>();
  if (!tls) return std::unexpected(std::move(tls.error()));
  return std::unique_ptr<RemoteStore>(new RemoteStore(std::move(options), *std::move(tls)));
}

RemoteStore::RemoteStore(RemoteStoreOptions options, std::shared_ptr<const NetTls> tls)
    : options_(std::move(options)),
      block_bytes_(std::ranges::max(options_.group_bytes)),
      keys_(options_.secret, options_.fingerprint),
      store_seal_(options_.secret),
      load_seal_(options_.secret),
      stores_(std::make_unique<RemoteLine>(storing_line(line_options(options_, tls, block_bytes_), options_.gives_way))),
      loads_(std::make_unique<RemoteLine>(line_options(options_, tls, block_bytes_))),
      asks_(std::make_unique<RemoteLine>(asking_line(line_options(options_, std::move(tls), block_bytes_)))) {}

RemoteStore::~RemoteStore() = default;

void RemoteStore::submit(TierJob job) {
  QUIRE_CHECK(job.bytes > 0 && job.bytes <= block_bytes_, "no such block");
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
    if (is_forbidden(key) || !job->copy(bytes.subspan(kRemoteHeaderBytes, job->bytes))) return false;
    store_seal_.seal(key, bytes);
    words = {"SET", key};
    words.push_back(std::move(value));
    words.insert(words.end(), {"EX", std::to_string(options_.ttl_s)});
    return true;
  };
  const auto over = [this, job](const RemoteReply& reply) {
    if (reply.kind == RemoteReplyKind::unsent) return end(*job, TierOutcome::given_up);
    const bool is_stored = reply.kind == RemoteReplyKind::status && reply.text == "OK";
    end(*job, is_stored ? TierOutcome::done : TierOutcome::failed);
  };
  stores_->submit({.key = std::move(key), .write = write, .over = over});
}

void RemoteStore::submit_load(const std::shared_ptr<TierJob>& job, std::string key) {
  count_.load_begins();
  const auto write = [key](std::vector<std::string>& words) {
    words = {"GET", key};
    return true;
  };
  const auto over = [this, job, key](const RemoteReply& reply) {
    const TierOutcome outcome = take_loaded(*job, key, reply);
    if (outcome == TierOutcome::done) renew(key);
    end(*job, outcome);
  };
  loads_->submit({.key = std::move(key), .write = write, .over = over});
}

TierOutcome RemoteStore::take_loaded(const TierJob& job, const std::string& key, const RemoteReply& reply) {
  if (!is_answer(reply)) return TierOutcome::failed;
  count_.read(reply.bytes.size());
  if (reply.kind == RemoteReplyKind::nil || is_forbidden(key)) return TierOutcome::absent;
  const auto block = load_seal_.open(key, reply.bytes, job.bytes);
  if (!block) return TierOutcome::refused;
  return job.copy(*block) ? TierOutcome::done : TierOutcome::given_up;
}

// A block that is of use stays. Where that fails the block goes when its time is over.
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

void RemoteStore::forbid(const OffloadKey& name) {
  std::string key = keys_.key_of(name);
  {
    const std::lock_guard lock(mutex_);
    forbidden_.insert(key);
  }
  remove(std::move(key));
}

bool RemoteStore::is_forbidden(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return !forbidden_.empty() && forbidden_.contains(key);
}

// Commands of one key take effect in their order: they have one connection (remote_line.h).
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

// Of the asking line's thread, and of whoever ends it.
struct RemoteStore::Question {
  Answer answer;
  std::size_t num_left = 0;
  bool was_sent = true;
  std::function<bool()> is_wanted;
  std::function<void(const Answer&)> over;
};

void RemoteStore::ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) {
  QUIRE_CHECK(!names.empty(), "a question about nothing");
  const auto question = std::make_shared<Question>();
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
      question->answer.has[i] = reply.kind == RemoteReplyKind::integer && reply.integer == wanted && !is_forbidden(key);
      question->answer.is_whole &= reply.kind == RemoteReplyKind::integer;
      question->was_sent &= reply.kind != RemoteReplyKind::unsent;
      if (--question->num_left > 0) return;
      if (question->was_sent) count_.found(static_cast<std::uint64_t>(std::ranges::count(question->answer.has, true)));
      question->over(question->answer);
    };
    asks_->submit({.key = std::move(key), .write = write, .over = take});
  }
}

void RemoteStore::try_loads() {
  count_.try_loads(*this, options_.group_bytes, {kNobodysName});
}

std::string RemoteStore::last_problem() const {
  for (const RemoteLine* const line : {loads_.get(), stores_.get(), asks_.get()})
    if (std::string problem = line->last_problem(); !problem.empty()) return problem;
  return {};
}

}  // namespace quire
