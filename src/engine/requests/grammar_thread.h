#pragma once
// Compiles grammars on a separate thread, which starts with the first grammar. Compiled grammars are kept, within bounds.
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
  // Waits for the grammar that is being compiled.
  ~GrammarThread();

  // Sets a callback for the compiling thread to call when take() has a result. Must be set before the first put().
  void set_notify(std::function<void()> notify) { notify_ = std::move(notify); }
  void put(RequestId id, GrammarSpec wanted);
  // Drops the request's grammar if it is still queued; otherwise take() may still return it.
  void forget(RequestId id);
  // Returns the compiled grammars in the order of put(). Costs nothing before the first put().
  std::vector<Compiled> take();

 private:
  // A grammar to compile for one request. If an equal one was compiled before, it is found in cache_.
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
  // Used by the thread. `cache_` begins with the most recently used grammar.
  std::shared_ptr<const GrammarCompiler> compiler_;
  std::list<CachedMatcher> cache_;
  std::size_t num_cached_bytes_ = 0;
  std::thread thread_;
};

}  // namespace quire
