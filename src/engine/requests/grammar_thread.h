#pragma once
// Compiles grammars on a thread of its own, which begins with the first one. What has been compiled is kept, within bounds.
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
  using Wanted = std::shared_ptr<const StructuredOutput>;
  struct Compiled {
    RequestId id;
    Result<GrammarMatcher> matcher;
  };

  GrammarThread(std::shared_ptr<const TokenizerSpec> tokenizer, std::uint32_t vocab_size);
  // Waits for the one that is being compiled.
  ~GrammarThread();

  // Called on the thread when take() would give something; before the first put().
  void notify_with(std::function<void()> notify) { notify_ = std::move(notify); }
  void put(RequestId id, Wanted wanted);
  // It is not wanted any more; it may come out all the same.
  void forget(RequestId id);
  // Those that are ready, first asked for first. Costs nothing where there are none.
  std::vector<Compiled> take();

 private:
  // One grammar to be compiled, for one request; alike ones are found in kept_ when their turn comes.
  struct Job {
    RequestId id;
    Wanted wanted;
  };
  struct Kept {
    Wanted wanted;
    GrammarMatcher matcher;  // has seen no token
  };
  void run();
  Result<GrammarMatcher> compile(const Wanted& wanted);
  void keep(const Wanted& wanted, const GrammarMatcher& matcher);

  std::shared_ptr<const TokenizerSpec> tokenizer_;
  std::uint32_t vocab_size_;
  std::function<void()> notify_;
  // For what follows, down to stopping_.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<Compiled> compiled_;
  bool stopping_ = false;
  // The thread's own, the one used last first.
  std::shared_ptr<const GrammarCompiler> compiler_;
  std::list<Kept> kept_;
  std::size_t num_kept_bytes_ = 0;
  std::thread thread_;
};

}  // namespace quire
