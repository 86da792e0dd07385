#pragma once
// A tier in memory that uses installed headers only. Blocks are stored under their hashes while their request runs and when it ends, and
// they are loaded for prompts that begin with them. Transfers end late, out of order except for transfers of one slot, and with the faults
// that a test sets.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "quire/base/plan.h"
#include "quire/connector.h"
#include "quire/core.h"
#include "quire/transport.h"

namespace quire::test {

struct ToyFaults {
  double failed = 0.0;  // share of transfers that fail; a failed load writes garbage to its first block
  double twice = 0.0;   // share of transfers whose end is reported twice
  double never = 0.0;   // share of transfers that never end
};

struct ToyOptions {
  std::uint32_t block_size = 16;
  std::vector<std::uint32_t> windows = {0};  // tokens by cache group; 0 means no window
  double load_async = 1.0;                   // share of loads that are asynchronous
  std::uint32_t longest_us = 2000;           // longest duration of a transfer
  std::uint64_t seed = 1;
  ToyFaults faults = {};
};

class ToyTier final : public Connector, public Transport {
 public:
  explicit ToyTier(const ToyOptions& options) : options_(options), random_(options.seed) {}

  // The scheduler's half. It is called on the engine thread.

  void bind(const Core& core) override { core_ = &core; }
  [[nodiscard]] bool supports_groups() const override { return true; }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    const std::uint32_t first = num_local_tokens / options_.block_size;
    std::uint32_t end = num_named(request);
    // The last token is computed again, so its window must be loaded too.
    if (has_windows() && end * options_.block_size == request.tokens.size() && end > 0) --end;
    while (end > first && !has_all(request, first, end)) --end;
    end = std::max(end, first);
    Found& found = found_[request.id];
    found = {.first = first, .load_async = chance(options_.load_async)};
    return {.num_tokens = (end - first) * options_.block_size, .load_async = found.load_async && end > first};
  }

  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    Known& known = known_[request.id];
    known.tables.resize(blocks.size());
    known.names.assign(blocks.size(), {});
    for (std::uint32_t group = 0; group < blocks.size(); ++group)
      for (std::uint32_t i = 0; i < num_named(request); ++i) known.names[group].push_back(name_of(request, i, group));
    if (num_external_tokens == 0) return;
    const Found& found = found_.at(request.id);
    Moving load{.request = request.id, .direction = TransferDirection::load};
    if (!found.load_async) load.need = chance(0.5) ? TransferNeed::step : TransferNeed::layer_by_layer;
    const std::uint32_t count = (num_external_tokens + options_.block_size - 1) / options_.block_size;
    // The step continues in the last block, so the whole block is needed at the beginning of the step.
    if (num_external_tokens % options_.block_size != 0 && !found.load_async) load.need = TransferNeed::step;
    for (load.group = 0; load.group < blocks.size(); ++load.group) {
      Moving of_group = load;
      for (std::uint32_t i = found.first; i < found.first + count; ++i) {
        const std::string& name = known.names[load.group][i];
        if (blocks[load.group][i] != kNullBlock && places_.contains(name)) of_group.add(name, blocks[load.group][i], places_.at(name), i);
      }
      if (of_group.blocks.empty()) continue;
      ++known.num_loading;
      pending_.push_back(std::move(of_group));
    }
  }

  bool finished(const RequestView& request, GroupBlocks blocks) override {
    const Known known = known_[request.id];
    known_.erase(request.id);
    found_.erase(request.id);
    forget_stores(request.id);
    const bool is_good = request.status == RequestStatus::finished_stopped || request.status == RequestStatus::finished_length;
    if (known.num_loading > 0 || !is_good) return false;
    bool stores = false;
    for (std::uint32_t group = 0; group < blocks.size(); ++group) {
      Moving store{.request = request.id, .direction = TransferDirection::store};
      store.group = group;
      for (std::uint32_t i = 0; i < std::min(num_named(request), request.num_computed_tokens / options_.block_size); ++i)
        add_new(store, name_of(request, i, group), blocks[group][i], i);
      if (store.blocks.empty()) continue;
      store.is_last = true;
      pending_.push_back(std::move(store));
      stores = true;
    }
    return stores;
  }

  void invalidated(const RequestView& request, std::uint32_t /*num_valid_tokens*/) override { forget_stores(request.id); }

  void planned(const StepPlan& plan) override {
    for (const RequestId id : plan.preempted) forget_stores(id);
    for (const BlockTableDelta& delta : plan.table_deltas) {
      Known& known = known_[delta.id];
      known.tables.resize(std::max<std::size_t>(known.tables.size(), delta.group + 1));
      std::vector<BlockId>& table = known.tables[delta.group];
      if (delta.update == TableUpdate::replace_one) {
        table.at(delta.index) = delta.blocks[0];
        continue;
      }
      if (delta.update == TableUpdate::replace_all) table.clear();
      table.insert(table.end(), delta.blocks.begin(), delta.blocks.end());
    }
  }

  void plan_transfers(const StepPlan& plan, TransferList& transfers) override {
    for (const ScheduledRequest& scheduled : plan.scheduled) store_computed(scheduled);
    ++num_plans_;
    std::erase_if(pending_, [&](const Moving& moving) {
      // Checked in each plan, since a request may hold the same block again in a later plan before it is overwritten.
      if (moving.direction == TransferDirection::store && !moving.is_last && !holds_blocks(moving)) {
        for (const std::string& name : moving.names) storing_.erase(name);
        return true;
      }
      if (moving.not_before > num_plans_) return false;
      const auto id = transfers.add({.id = {},
                                     .request = moving.request,
                                     .direction = moving.direction,
                                     .need = moving.need,
                                     .group = moving.group,
                                     .blocks = moving.blocks,
                                     .places = moving.places});
      if (id) moving_[*id] = moving;
      return id.has_value();
    });
  }

  void completed(const TransferCompletion& completion) override {
    const Moving moved = std::move(moving_.at(completion.transfer));
    moving_.erase(completion.transfer);
    const bool is_load = moved.direction == TransferDirection::load;
    const bool failed = completion.outcome == TransferOutcome::failed;
    if (const auto known = known_.find(moved.request); is_load && known != known_.end() && !failed) --known->second.num_loading;
    for (std::size_t i = 0; i < moved.names.size(); ++i) {
      if (!is_load) storing_.erase(moved.names[i]);
      if (!is_load && !failed) places_[moved.names[i]] = moved.places[i];
      if (is_load && failed) places_.erase(moved.names[i]);
    }
    if (is_load && failed) forget_stores(std::nullopt);
  }

  void step_output() override {}
  bool reset() override {
    places_.clear();
    return true;
  }

  // The worker's half.

  void attach(const KvPages& pages, std::function<void()> notify) override {
    pages_ = pages;
    notify_ = std::move(notify);
    mover_ = std::thread([this] { move(); });
  }

  void start(const Transfer& transfer) override {
    const std::lock_guard lock(mutex_);
    Queued& queued = queue_[transfer.id];
    queued.direction = transfer.direction;
    queued.group = transfer.group;
    queued.blocks.assign(transfer.blocks.begin(), transfer.blocks.end());
    queued.places.assign(transfer.places.begin(), transfer.places.end());
    queued.due = std::chrono::steady_clock::now() + std::chrono::microseconds(draw() % (options_.longest_us + 1));
    changed_.notify_all();
  }

  void poll(std::vector<TransferCompletion>& over) override {
    const std::lock_guard lock(mutex_);
    told_.swap(over_);
    over_.clear();
    for (const Over& one : told_) over.push_back(one.completion);
    for (std::size_t i = 0; i < told_.size(); ++i) over[over.size() - told_.size() + i].bad_blocks = told_[i].bad;
  }

  void wait(TransferId id) override {
    std::unique_lock lock(mutex_);
    if (const auto found = queue_.find(id); found != queue_.end()) found->second.due = {};
    changed_.notify_all();
    changed_.wait(lock, [&] { return !queue_.contains(id); });
  }

  // Returns how many transfers ended before one that began earlier.
  std::uint64_t num_overtaking() {
    const std::lock_guard lock(mutex_);
    return num_overtaking_;
  }

  void detach() override {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
      changed_.notify_all();
    }
    mover_.join();
  }

 private:
  struct Found {
    std::uint32_t first = 0;
    bool load_async = false;
  };
  struct Known {
    std::vector<std::vector<std::string>> names;  // hashes of the prompt's full blocks by cache group
    std::vector<std::vector<BlockId>> tables;     // by cache group
    std::uint32_t num_loading = 0;                // loads in flight or failed; blocks computed on them must not be stored
  };
  struct Moving {
    RequestId request;
    TransferDirection direction;
    TransferNeed need = TransferNeed::nothing;
    std::uint32_t group = 0;
    std::vector<std::string> names = {};
    std::vector<BlockId> blocks = {};
    std::vector<std::uint64_t> places = {};
    std::vector<std::size_t> indices = {};  // indices of the blocks in the request's table
    std::uint64_t not_before = 0;           // number of the first possible plan, counted from 1
    bool is_last = false;                   // the request has ended well
    void add(const std::string& name, BlockId block, std::uint64_t place, std::size_t index) {
      names.push_back(name);
      blocks.push_back(block);
      places.push_back(place);
      indices.push_back(index);
    }
  };
  struct Queued {
    TransferDirection direction;
    std::uint32_t group = 0;
    std::vector<BlockId> blocks;
    std::vector<std::uint64_t> places;
    std::chrono::steady_clock::time_point due;
    bool is_lost = false;
  };
  struct Over {
    TransferCompletion completion;
    std::vector<BlockId> bad;
  };

  static std::uint32_t num_named(const RequestView& request) { return static_cast<std::uint32_t>(request.block_hashes.size() / 32); }
  static std::string name_of(const RequestView& request, std::uint32_t index, std::uint32_t group) {
    const auto bytes = request.block_hashes.subspan(std::size_t{index} * 32, 32);
    return std::string(bytes.begin(), bytes.end()) + static_cast<char>(group);
  }
  bool has_windows() const {
    return std::ranges::any_of(options_.windows, [](std::uint32_t window) { return window > 0; });
  }
  // Returns whether the tier has all blocks from `first` on that tokens after block `end` attend to.
  bool has_all(const RequestView& request, std::uint32_t first, std::uint32_t end) const {
    for (std::uint32_t group = 0; group < options_.windows.size(); ++group) {
      const std::uint32_t window = options_.windows[group], tokens = end * options_.block_size;
      const std::uint32_t begin = window == 0 || window > tokens ? 0 : (tokens - window + 1) / options_.block_size;
      for (std::uint32_t i = std::max(first, begin); i < end; ++i)
        if (!places_.contains(name_of(request, i, group))) return false;
    }
    return true;
  }
  // chance() draws on the engine thread. draw() and draws() are called under mutex_.
  bool chance(double share) { return std::uniform_real_distribution<>()(random_) < share; }
  std::uint64_t draw() { return mover_random_(); }
  bool draws(double share) { return std::uniform_real_distribution<>()(mover_random_) < share; }

  void add_new(Moving& store, const std::string& name, BlockId block, std::size_t index) {
    if (block != kNullBlock && !places_.contains(name) && storing_.insert(name).second) store.add(name, block, next_place_++, index);
  }

  // A window may free the blocks, and the same request may get them again at another index.
  bool holds_blocks(const Moving& moving) const {
    const std::span<const BlockId> held = core_->blocks(moving.request, moving.group);
    for (std::size_t i = 0; i < moving.blocks.size(); ++i)
      if (moving.indices[i] >= held.size() || held[moving.indices[i]] != moving.blocks[i]) return false;
    return true;
  }

  // Drops the stores that have not begun, of one request or of all.
  void forget_stores(std::optional<RequestId> request) {
    std::erase_if(pending_, [&](const Moving& moving) {
      if (moving.direction != TransferDirection::store || moving.is_last || (request && moving.request != *request)) return false;
      for (const std::string& name : moving.names) storing_.erase(name);
      return true;
    });
  }

  // Stores blocks of the prompt that count as computed. A hit may be on blocks that another request computes in the same step, on loads
  // that may fail. The stores therefore begin two plans later, when the result of this plan is known.
  void store_computed(const ScheduledRequest& scheduled) {
    const Known& known = known_[scheduled.id];
    if (known.num_loading > 0) return;
    for (std::uint32_t group = 0; group < std::min(known.names.size(), known.tables.size()); ++group) {
      Moving store{.request = scheduled.id, .direction = TransferDirection::store};
      store.group = group;
      const std::size_t num_computed = scheduled.num_computed_tokens / options_.block_size;
      for (std::size_t i = 0; i < std::min({num_computed, known.names[group].size(), known.tables[group].size()}); ++i)
        add_new(store, known.names[group][i], known.tables[group][i], i);
      store.not_before = num_plans_ + 3;
      if (!store.blocks.empty()) pending_.push_back(std::move(store));
    }
  }

  void move() {
    std::unique_lock lock(mutex_);
    while (!stops_) {
      const auto now = std::chrono::steady_clock::now();
      std::vector<TransferId> due;
      for (const auto& [id, queued] : queue_)
        if (queued.due <= now && !queued.is_lost) due.push_back(id);
      if (due.empty()) {
        changed_.wait_for(lock, std::chrono::microseconds(200));
        continue;
      }
      const TransferId id = first_in_places_of(due[draw() % due.size()]);
      if (draws(options_.faults.never)) {
        queue_.at(id).is_lost = true;
        continue;
      }
      num_overtaking_ += id > queue_.begin()->first ? 1 : 0;
      Over over = run(id, queue_.at(id));
      queue_.erase(id);
      if (draws(options_.faults.twice)) over_.push_back(over);
      over_.push_back(std::move(over));
      changed_.notify_all();
      lock.unlock();
      notify_();
      lock.lock();
    }
  }

  // Transfers of one slot keep their order, except for loads among themselves.
  TransferId first_in_places_of(TransferId id) const {
    const Queued& chosen = queue_.at(id);
    for (const auto& [earlier, queued] : queue_) {
      if (earlier == id) break;
      if (queued.direction == TransferDirection::load && chosen.direction == TransferDirection::load) continue;
      if (std::ranges::find_first_of(queued.places, chosen.places) != queued.places.end()) return first_in_places_of(earlier);
    }
    return id;
  }

  Over run(TransferId id, const Queued& queued) {
    Over over{.completion = {.transfer = id, .outcome = TransferOutcome::done, .bytes = 0, .seconds = 0.0, .bad_blocks = {}}, .bad = {}};
    const bool fails = draws(options_.faults.failed);
    bool is_missing = false;  // a block of the load was not stored
    for (std::size_t i = 0; i < queued.blocks.size(); ++i) {
      const std::span<std::byte> page = pages_.page(0, queued.blocks[i]);  // all groups share the tensors, as in the test's worker
      std::vector<std::byte>& content = content_[queued.places[i]];
      is_missing |= queued.direction == TransferDirection::load && content.empty();
      if (queued.direction == TransferDirection::load)
        std::ranges::copy(content, page.begin());
      else
        content.assign(page.begin(), fails ? page.begin() : page.end());
      over.completion.bytes += page.size();
    }
    if (!fails && !is_missing) return over;
    over.completion.outcome = TransferOutcome::failed;
    if (is_missing) return over;
    if (queued.direction == TransferDirection::load) {
      std::ranges::fill(pages_.page(0, queued.blocks.front()), std::byte{0x5A});
      over.bad = {queued.blocks.front()};
    }
    return over;
  }

  const ToyOptions options_;
  const Core* core_ = nullptr;
  std::mt19937_64 random_;
  std::map<RequestId, Found> found_;
  std::map<RequestId, Known> known_;
  std::map<std::string, std::uint64_t> places_;  // slots of the stored blocks
  std::set<std::string> storing_;
  std::uint64_t next_place_ = 0;
  std::vector<Moving> pending_;  // transfers for the next plan or a later one
  std::uint64_t num_plans_ = 0;
  std::map<TransferId, Moving> moving_;

  KvPages pages_;
  std::function<void()> notify_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 mover_random_{options_.seed + 1};
  std::map<TransferId, Queued> queue_;
  std::vector<Over> over_, told_;
  std::map<std::uint64_t, std::vector<std::byte>> content_;  // by slot
  bool stops_ = false;
  std::uint64_t num_overtaking_ = 0;
  std::thread mover_;
};

}  // namespace quire::test
