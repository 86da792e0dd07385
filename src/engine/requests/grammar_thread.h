#pragma once
// Compiles grammars on a separate thread, which starts with the first grammar. A bounded number of compiled grammars is cached.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/model_info.h"
#include "quire/base/structured_output.h"
#include "runtime/grammar/grammar_matcher.h"

namespace quire {

class GrammarThread {
 public:
  using GrammarSpec = std::shared_ptr<const StructuredOutput>;
  struct Compiled {
    RequestId id;
    Result<GrammarMatcher> matcher;
  };

  GrammarThread(std::shared_ptr<const TokenizerSpec> tokenizer, std::uint32_t vocab_size);
  // Waits until the current compilation ends.
  ~GrammarThread();

  // Sets a callback, which the compiling thread calls when take() has a result. Must be called before the first put().
  void set_notify(std::function<void()> notify) { notify_ = std::move(notify); }
  void put(RequestId id, GrammarSpec wanted);
  // Removes the request's grammar if it is still queued; otherwise take() may still return the grammar.
  void forget(RequestId id);
  // Returns the newly compiled grammars in the order of put(). Costs nothing before the first put().
  std::vector<Compiled> take();

 private:
  // A grammar to compile for one request. cache_ is searched first for an equal grammar.
  struct Job {
    RequestId id;
    GrammarSpec wanted;
  };
  struct CachedMatcher {
    GrammarSpec wanted;
    GrammarMatcher matcher;  // has accepted no token
  };
  void run();
  Result<GrammarMatcher> compile(const GrammarSpec& wanted);
  void keep(const GrammarSpec& wanted, const GrammarMatcher& matcher);

  std::shared_ptr<const TokenizerSpec> tokenizer_;
  std::uint32_t vocab_size_;
  std::function<void()> notify_;
  // Guards the members from here to stopping_.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<Compiled> compiled_;
  bool stopping_ = false;
  // Used only by the compiling thread. The first entry of `cache_` is the most recently used grammar.
  std::shared_ptr<const GrammarCompiler> compiler_;
  std::list<CachedMatcher> cache_;
  std::size_t num_cached_bytes_ = 0;
  std::thread thread_;
};

}  // namespace quire
