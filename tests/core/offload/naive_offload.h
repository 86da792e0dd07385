#pragma once
// A naive offloading manager for comparison with the ledger. Every query walks lists from the oldest key on.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/offload/naive_policies.h"
#include "quire/eviction_policy.h"

namespace quire::test {

struct NaiveStore {
  std::vector<int> keys, slots, evicted;
  friend bool operator==(const NaiveStore&, const NaiveStore&) = default;
};

struct NaiveEvent {
  std::vector<int> keys;
  bool removed;
  friend bool operator==(const NaiveEvent&, const NaiveEvent&) = default;
};

// Keys are numbers.
class NaiveOffload {
 public:
  struct Block {
    int slot;
    int ref_count;
  };
  using Keys = std::vector<int>;

  NaiveOffload(OffloadPolicy policy, int num_slots, int threshold, int max_tracked, bool restores = false)
      : arc_(policy == OffloadPolicy::arc),
        textbook_(make_naive_policy(policy, num_slots)),
        num_slots_(num_slots),
        threshold_(threshold),
        max_tracked_(max_tracked),
        num_taken_(restores ? num_slots : 0) {
    for (int slot = 0; restores && slot < num_slots; ++slot) unread.push_back(slot);
  }

  // nullopt: the slot holds nothing.
  bool restore(int slot, std::optional<int> key) {
    std::erase(unread, slot);
    if (!key || blocks.contains(*key)) {
      free_.push_back(slot);
      return false;
    }
    if (textbook_) {
      textbook_->restore(*key);
    } else {
      t1.insert(t1.begin(), *key);
      std::erase(b1, *key);
      std::erase(b2, *key);
    }
    blocks[*key] = {slot, 0};
    events.push_back({{*key}, false});
    return true;
  }

  int lookup(const Keys& keys) {
    for (int key : keys) count(key);
    const auto miss = std::ranges::find_if(keys, [&](int key) { return !ready(key); });
    return static_cast<int>(miss - keys.begin());
  }

  bool can_load(const Keys& keys) const {
    return std::ranges::all_of(keys, [&](int key) { return ready(key); });
  }
  Keys load(const Keys& keys) {
    Keys slots;
    for (int key : keys) {
      ++blocks.at(key).ref_count;
      slots.push_back(blocks.at(key).slot);
    }
    return slots;
  }
  bool can_complete_load(const Keys& keys) const {
    return std::ranges::all_of(
        keys, [&](int key) { return blocks.contains(key) && blocks.at(key).ref_count >= static_cast<int>(std::ranges::count(keys, key)); });
  }
  void complete_load(const Keys& keys) {
    for (int key : keys) --blocks.at(key).ref_count;
  }

  void touch(const Keys& keys) {
    for (auto key = keys.rbegin(); key != keys.rend(); ++key) arc_ ? touch_arc(*key) : move_to_end(t1, *key);
  }
  void use(const Keys& keys) {
    for (auto key = keys.rbegin(); textbook_ && key != keys.rend(); ++key)
      if (blocks.contains(*key)) textbook_->use(*key);
  }

  std::optional<NaiveStore> store(Keys keys) {
    if (threshold_ >= 2) std::erase_if(keys, [&](int key) { return count_of(key) < threshold_; });
    NaiveStore result;
    std::ranges::copy_if(keys, std::back_inserter(result.keys), [&](int key) { return !blocks.contains(key); });
    const int missing = static_cast<int>(result.keys.size()) - (num_slots_ - num_taken_ + static_cast<int>(free_.size()));
    if (missing > 0) {
      if (!unread.empty()) return std::nullopt;
      const auto victims = textbook_ ? admit(result.keys, missing, keys) : choose(missing, {keys.begin(), keys.end()});
      if (!victims) return std::nullopt;
      evict(*victims);
      result.evicted = *victims;
      events.push_back({*victims, true});
    } else if (textbook_) {
      admit(result.keys, 0, keys);
    }
    for (int key : result.keys) {
      result.slots.push_back(take_slot());
      insert(key, result.slots.back());
    }
    return result;
  }

  void complete_store(const Keys& keys, bool success) {
    NaiveEvent event{{}, false};
    for (int key : keys) {
      if (!blocks.contains(key) || ready(key)) continue;
      if (success) {
        blocks.at(key).ref_count = 0;
        event.keys.push_back(key);
      } else {
        free_.push_back(blocks.at(key).slot);
        textbook_ ? textbook_->remove(key) : static_cast<void>(std::erase(t1, key));
        blocks.erase(key);
      }
    }
    if (!event.keys.empty()) events.push_back(event);
  }

  // Returns the queues in the form of PolicySnapshot.
  std::vector<Keys> lists() const {
    if (textbook_) return textbook_->lists();
    return arc_ ? std::vector<Keys>{t1, t2, b1, b2} : std::vector<Keys>{t1};
  }
  double target_t1_size() const { return textbook_ ? textbook_->target() : target; }

  std::map<int, Block> blocks;
  Keys t1, t2, b1, b2;  // of vLLM's policies; lru: all in t1
  double target = 0;
  std::vector<std::pair<int, int>> counts;  // key and lookups, oldest first
  std::vector<NaiveEvent> events;
  Keys unread;  // slots

 private:
  [[nodiscard]] bool ready(int key) const { return blocks.contains(key) && blocks.at(key).ref_count >= 0; }
  // Evicts one key after another. The last `missing` keys find no victim.
  std::optional<Keys> admit(const Keys& incoming, int missing, const Keys& kept) {
    const auto may_go = [&](int key) { return blocks.contains(key) && blocks.at(key).ref_count == 0 && !has(kept, key); };
    if (std::ranges::count_if(blocks, [&](const auto& block) { return may_go(block.first); }) < missing) return std::nullopt;
    Keys victims;
    for (std::size_t i = 0; i < incoming.size(); ++i)
      if (const auto victim = textbook_->admit(incoming[i], i + static_cast<std::size_t>(missing) >= incoming.size(), may_go))
        victims.push_back(*victim);
    textbook_->settle();
    return victims;
  }

  static bool has(const Keys& list, int key) { return std::ranges::find(list, key) != list.end(); }
  static void move_to_end(Keys& list, int key) {
    if (std::erase(list, key) > 0) list.push_back(key);
  }

  int count_of(int key) const {
    const auto found = std::ranges::find(counts, key, &std::pair<int, int>::first);
    return found == counts.end() ? 0 : found->second;
  }
  void count(int key) {
    const int before = count_of(key);
    std::erase_if(counts, [&](const auto& counted) { return counted.first == key; });
    if (static_cast<int>(counts.size()) == max_tracked_) counts.erase(counts.begin());
    counts.emplace_back(key, before + 1);
  }

  void touch_arc(int key) {
    if (has(t1, key)) {
      std::erase(t1, key);
      (ready(key) ? t2 : t1).push_back(key);
    } else if (has(t2, key)) {
      move_to_end(t2, key);
    } else if (has(b1, key)) {
      target = std::min<double>(target + std::max(1.0, static_cast<double>(b2.size()) / static_cast<double>(b1.size())), num_slots_);
      move_to_end(b1, key);
    } else if (has(b2, key)) {
      target = std::max(target - std::max(1.0, static_cast<double>(b1.size()) / static_cast<double>(b2.size())), 0.0);
      move_to_end(b2, key);
    }
  }

  // Picks one victim after another, each from the head.
  std::optional<Keys> choose(int count, const std::set<int>& kept) const {
    Keys victims;
    auto may_go = [&](int key) { return blocks.at(key).ref_count == 0 && !kept.contains(key) && !has(victims, key); };
    auto virtual_t1_size = static_cast<int>(t1.size());
    while (static_cast<int>(victims.size()) < count) {
      if (!arc_ || virtual_t1_size >= static_cast<int>(target)) {
        if (const auto key = std::ranges::find_if(t1, may_go); key != t1.end()) {
          victims.push_back(*key);
          --virtual_t1_size;
          continue;
        }
      }
      const auto key = std::ranges::find_if(t2, may_go);
      if (key == t2.end()) return std::nullopt;
      victims.push_back(*key);
    }
    return victims;
  }

  void evict(const Keys& victims) {
    for (int key : victims) {
      if (arc_) (has(t1, key) ? b1 : b2).push_back(key);
      std::erase(t1, key);
      std::erase(t2, key);
      free_.push_back(blocks.at(key).slot);
      blocks.erase(key);
    }
    for (Keys* ghosts : {&b1, &b2})
      while (static_cast<int>(ghosts->size()) > num_slots_) ghosts->erase(ghosts->begin());
  }

  int take_slot() {
    if (num_taken_ < num_slots_) return num_taken_++;
    const int slot = free_.back();
    free_.pop_back();
    return slot;
  }

  void insert(int key, int slot) {
    if (!textbook_) {
      if (!has(t1, key)) t1.push_back(key);
      std::erase(b1, key);
      std::erase(b2, key);
    }
    blocks[key] = {slot, -1};
  }

  bool arc_;
  std::unique_ptr<NaivePolicy> textbook_;  // null for vLLM's policies
  int num_slots_, threshold_, max_tracked_;
  int num_taken_;
  Keys free_;
};

}  // namespace quire::test
