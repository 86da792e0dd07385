// Binds quire.OffloadManager, which records the blocks of a lower tier.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "errors.h"
#include "module.h"
#include "offload_key_bytes.h"
#include "quire/eviction_policy.h"
#include "quire/offload_manager.h"

namespace quire::python {
namespace {

// An eviction policy written in Python. If one of its methods raises, the manager's call continues as if the policy evicted nothing, and
// then raises the exception.
class PyEvictionPolicy final : public EvictionPolicy {
 public:
  PyEvictionPolicy(nb::object policy, const SlotKeys& keys, nb::object& failure)
      : policy_(std::move(policy)), keys_(keys), failure_(failure) {}

  void insert(std::uint32_t slot) override {
    slots_[slot] = false;
    notify_policy("insert", slot, bytes_of_key(keys_.key_of(slot)));
  }
  void insert_oldest(std::uint32_t slot) override { insert(slot); }
  void replace(std::uint32_t old, std::uint32_t slot) override {
    slots_.erase(old);
    notify_policy("remove", old);
    insert(slot);
  }
  void remove(std::uint32_t slot) override {
    slots_.erase(slot);
    notify_policy("remove", slot);
  }
  void touch(std::uint32_t slot, bool ready) override { notify_policy("touch", slot, ready); }
  void use(std::uint32_t slot) override { notify_policy("use", slot); }
  void set_evictable(std::uint32_t slot, bool evictable) override { slots_[slot] = evictable; }
  bool evict(std::uint32_t count, std::span<const OffloadKey> incoming, std::vector<std::uint32_t>& slots) override {
    if (count == 0) return true;
    try {
      nb::list evictable;
      for (const auto& [slot, is_evictable] : slots_)
        if (is_evictable) evictable.append(slot);
      const auto chosen = nb::cast<Slots>(policy_.attr("evict")(count, evictable, bytes_of_keys(incoming)));
      const std::set<std::uint32_t> different(chosen.begin(), chosen.end());
      if (chosen.empty() || failure_.is_valid()) return false;
      if (chosen.size() != count || different.size() != count ||
          !std::ranges::all_of(chosen, [this](std::uint32_t slot) { return is_evictable(slot); }))
        throw nb::value_error("evict() must return `count` different slots from `evictable`, or none");
      for (const std::uint32_t slot : chosen) slots_.erase(slot);
      slots.insert(slots.end(), chosen.begin(), chosen.end());
      return true;
    } catch (...) {
      save_exception();
      return false;
    }
  }

  [[nodiscard]] bool is_evictable(std::uint32_t slot) const override {
    const auto found = slots_.find(slot);
    return found != slots_.end() && found->second;
  }
  [[nodiscard]] std::uint32_t num_resident() const override { return static_cast<std::uint32_t>(slots_.size()); }

 private:
  template <class... Args>
  void notify_policy(const char* name, Args&&... args) {
    try {
      policy_.attr(name)(std::forward<Args>(args)...);
    } catch (...) {
      save_exception();
    }
  }
  // Saves the current Python exception. Only the first one is kept.
  void save_exception() {
    try {
      throw;
    } catch (const nb::python_error& error) {
      if (!failure_.is_valid()) failure_ = nb::borrow(error.value());
    } catch (const std::exception& error) {
      if (!failure_.is_valid()) failure_ = nb::borrow(PyExc_ValueError)(error.what());
    }
  }

  nb::object policy_;
  const SlotKeys& keys_;
  nb::object& failure_;
  std::map<std::uint32_t, bool> slots_;  // slot -> whether it is evictable; contains all resident slots
};

class PyOffloadManager {
 public:
  PyOffloadManager(std::int64_t num_slots, const nb::object& policy, std::int64_t store_threshold, std::int64_t max_tracked_keys,
                   bool enable_events) {
    OffloadOptions options{
        .num_slots = num_slots, .store_threshold = store_threshold, .max_tracked_keys = max_tracked_keys, .enable_events = enable_events};
    if (nb::isinstance<nb::str>(policy))
      options.policy = value_or_raise(parse_offload_policy(nb::cast<std::string>(policy)));
    else
      options.custom_policy = [this, policy](std::uint32_t, const SlotKeys& keys) {
        return std::make_unique<PyEvictionPolicy>(policy, keys, failure_);
      };
    manager_ = value_or_raise(OffloadManager::create(options));
  }

  std::uint32_t lookup(const KeyList& keys) { return manager_->lookup(keys_of(keys)); }
  nb::bytes find(const KeyList& keys) const { return states_as_bytes(manager_->find(keys_of(keys))); }
  bool discard(const nb::bytes& key) {
    const bool is_gone = manager_->discard(key_of(key));
    raise_if_failed();
    return is_gone;
  }
  Slots prepare_load(const KeyList& keys) { return slot_indices(value_or_raise(manager_->prepare_load(keys_of(keys)))); }
  void complete_load(const KeyList& keys) { value_or_raise(manager_->complete_load(keys_of(keys))); }
  void touch(const KeyList& keys) {
    manager_->touch(keys_of(keys));
    raise_if_failed();
  }
  void use(const KeyList& keys) {
    manager_->use(keys_of(keys));
    raise_if_failed();
  }
  std::optional<std::tuple<KeyList, Slots, KeyList>> prepare_store(const KeyList& keys) {
    const auto store = manager_->prepare_store(keys_of(keys));
    std::optional<std::tuple<KeyList, Slots, KeyList>> answer;
    if (store) answer.emplace(bytes_of_keys(store->keys), slot_indices(store->slots), bytes_of_keys(store->evicted));
    raise_if_failed();
    return answer;
  }
  void complete_store(const KeyList& keys, bool success) {
    manager_->complete_store(keys_of(keys), success);
    raise_if_failed();
  }

  std::vector<std::tuple<KeyList, bool>> take_events() {
    std::vector<std::tuple<KeyList, bool>> events;
    events.reserve(manager_->num_events());
    for (std::size_t i = 0; i < manager_->num_events(); ++i)
      events.emplace_back(bytes_of_keys(manager_->event(i).keys), manager_->event(i).removed);
    manager_->clear_events();
    return events;
  }
  std::vector<KeyList> lists() const {
    std::vector<KeyList> lists;
    for (const auto& list : manager_->order().lists) lists.push_back(bytes_of_keys(list));
    return lists;
  }
  std::vector<std::tuple<nb::bytes, std::uint64_t>> counted() const {
    std::vector<std::tuple<nb::bytes, std::uint64_t>> counted;
    for (const CountedKey& one : manager_->counted()) counted.emplace_back(bytes_of_key(one.key), one.count);
    return counted;
  }
  OffloadManager& manager() { return *manager_; }

 private:
  void raise_if_failed() {
    if (!failure_.is_valid()) return;
    const nb::object failure = std::exchange(failure_, nb::object());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(failure.ptr())), failure.ptr());
    throw nb::python_error();
  }

  nb::object failure_;  // exception that a method of the policy raised
  std::unique_ptr<OffloadManager> manager_;
};

}  // namespace

void bind_offload(nb::module_& m) {
  nb::class_<PyOffloadManager> c(
      m, "OffloadManager",
      "Decides which blocks a lower tier holds, in which slots, and which blocks it evicts. It moves no data. Keys are\n"
      "block hashes of at most 32 bytes; results contain shorter keys padded with zeros. Not thread-safe.");
  c.def(nb::init<std::int64_t, const nb::object&, std::int64_t, std::int64_t, bool>(), nb::arg("num_slots"), nb::arg("policy") = "lru",
        nb::arg("store_threshold") = 0, nb::arg("max_tracked_keys") = 64'000, nb::arg("enable_events") = false,
        "policy: 'lru' or 'arc' as in vLLM, 'arc_paper', 's3fifo', or a quire.connectors.EvictionPolicy. store_threshold:\n"
        "number of lookups of a key before it is stored; below 2, all keys are stored. max_tracked_keys: maximum number\n"
        "of keys with counted lookups. ValueError if an option is out of range.");
  c.def("lookup", &PyOffloadManager::lookup, nb::arg("keys"),
        "Returns how many leading keys can be loaded without a gap. The reuse filter counts these lookups.");
  c.def("find", &PyOffloadManager::find, nb::arg("keys"), kFindDoc);
  c.def("discard", &PyOffloadManager::discard, nb::arg("key"),
        "Evicts a key because its loaded block was corrupted. Returns False, and keeps the key, if it is absent or in transfer.");
  c.def("prepare_load", &PyOffloadManager::prepare_load, nb::arg("keys"),
        "Returns the slots of the keys, which stay readable until complete_load() with the same keys. ValueError if a key\n"
        "cannot be loaded; then no key is held.");
  c.def("complete_load", &PyOffloadManager::complete_load, nb::arg("keys"),
        "Ends the loads of these keys. ValueError if a key is not being loaded.");
  c.def("touch", &PyOffloadManager::touch, nb::arg("keys"), "Marks the keys as used, the first key as the most recent.");
  c.def("use", &PyOffloadManager::use, nb::arg("keys"),
        "Call once per request when it is admitted, with its leading keys. 'arc_paper' and 's3fifo' count these calls instead of touches.");
  c.def("prepare_store", &PyOffloadManager::prepare_store, nb::arg("keys"),
        "Assigns slots to the keys that have none, and evicts other keys for them. Returns (keys, slots, evicted keys),\n"
        "or None if there is no room; then nothing has changed.");
  c.def("complete_store", &PyOffloadManager::complete_store, nb::arg("keys"), nb::arg("success") = true,
        "Ends the stores of these keys. They can be loaded now; without success their slots are free again.");
  c.def("take_events", &PyOffloadManager::take_events,
        "Returns the events since the last call, oldest first: [(keys, whether they were removed)].");
  c.def_prop_ro("num_slots", [](PyOffloadManager& self) { return self.manager().num_slots(); });
  c.def_prop_ro("num_free", [](PyOffloadManager& self) { return self.manager().num_free(); });
  c.def_prop_ro(
      "lists", &PyOffloadManager::lists,
      "Keys of the policy, each list from the oldest key. 'lru': all; 'arc', 'arc_paper': t1, t2, b1, b2; 's3fifo': small, main, ghosts.");
  c.def_prop_ro(
      "target_t1_size", [](PyOffloadManager& self) { return self.manager().order().target_t1_size; },
      "Target size of t1, for 'arc' and 'arc_paper'.");
  c.def_prop_ro("counted", &PyOffloadManager::counted, "Counts of the reuse filter, least recently looked up first: [(key, lookups)].");
  c.def(
      "check_invariants", [](PyOffloadManager& self) { self.manager().check_invariants(); },
      "Stops the program if an invariant is broken. For tests.");
}

}  // namespace quire::python
