// quire.OffloadManager: which blocks a lower tier holds.
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
#include "offload_names.h"
#include "quire/eviction_policy.h"
#include "quire/offload_manager.h"

namespace quire::python {
namespace {

// A policy written in Python. What it raises is raised by the manager's call, which has then gone on with an answer that changes nothing.
class PyEvictionPolicy final : public EvictionPolicy {
 public:
  PyEvictionPolicy(nb::object policy, const SlotKeys& keys, nb::object& failure)
      : policy_(std::move(policy)), keys_(keys), failure_(failure) {}

  void insert(std::uint32_t slot) override {
    slots_[slot] = false;
    tell("insert", slot, name_of(keys_.key_of(slot)));
  }
  void insert_oldest(std::uint32_t slot) override { insert(slot); }
  void replace(std::uint32_t old, std::uint32_t slot) override {
    slots_.erase(old);
    tell("remove", old);
    insert(slot);
  }
  void remove(std::uint32_t slot) override {
    slots_.erase(slot);
    tell("remove", slot);
  }
  void touch(std::uint32_t slot, bool ready) override { tell("touch", slot, ready); }
  void use(std::uint32_t slot) override { tell("use", slot); }
  void set_evictable(std::uint32_t slot, bool evictable) override { slots_[slot] = evictable; }
  bool evict(std::uint32_t count, std::span<const OffloadKey> incoming, std::vector<std::uint32_t>& slots) override {
    if (count == 0) return true;
    try {
      nb::list evictable;
      for (const auto& [slot, is_evictable] : slots_)
        if (is_evictable) evictable.append(slot);
      const auto chosen = nb::cast<Slots>(policy_.attr("evict")(count, evictable, names_of(incoming)));
      const std::set<std::uint32_t> different(chosen.begin(), chosen.end());
      if (chosen.empty() || failure_.is_valid()) return false;
      if (chosen.size() != count || different.size() != count ||
          !std::ranges::all_of(chosen, [this](std::uint32_t slot) { return is_evictable(slot); }))
        throw nb::value_error("evict() must return as many different slots as it is asked for, of those that it is given, or none");
      for (const std::uint32_t slot : chosen) slots_.erase(slot);
      slots.insert(slots.end(), chosen.begin(), chosen.end());
      return true;
    } catch (...) {
      note();
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
  void tell(const char* name, Args&&... args) {
    try {
      policy_.attr(name)(std::forward<Args>(args)...);
    } catch (...) {
      note();
    }
  }
  // The first error is told.
  void note() {
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
  std::map<std::uint32_t, bool> slots_;  // resident; whether they may go
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
      options.own_policy = [this, policy](std::uint32_t, const SlotKeys& keys) {
        return std::make_unique<PyEvictionPolicy>(policy, keys, failure_);
      };
    manager_ = value_or_raise(OffloadManager::create(options));
  }

  std::uint32_t lookup(const Names& names) { return manager_->lookup(keys_of(names)); }
  nb::bytes find(const Names& names) const { return places_of(manager_->find(keys_of(names))); }
  bool discard(const nb::bytes& name) {
    const bool is_gone = manager_->discard(key_of(name));
    raise_if_failed();
    return is_gone;
  }
  Slots prepare_load(const Names& names) { return numbers_of(value_or_raise(manager_->prepare_load(keys_of(names)))); }
  void complete_load(const Names& names) { value_or_raise(manager_->complete_load(keys_of(names))); }
  void touch(const Names& names) {
    manager_->touch(keys_of(names));
    raise_if_failed();
  }
  void use(const Names& names) {
    manager_->use(keys_of(names));
    raise_if_failed();
  }
  std::optional<std::tuple<Names, Slots, Names>> prepare_store(const Names& names) {
    const auto store = manager_->prepare_store(keys_of(names));
    std::optional<std::tuple<Names, Slots, Names>> answer;
    if (store) answer.emplace(names_of(store->keys), numbers_of(store->slots), names_of(store->evicted));
    raise_if_failed();
    return answer;
  }
  void complete_store(const Names& names, bool success) {
    manager_->complete_store(keys_of(names), success);
    raise_if_failed();
  }

  std::vector<std::tuple<Names, bool>> take_events() {
    std::vector<std::tuple<Names, bool>> events;
    events.reserve(manager_->num_events());
    for (std::size_t i = 0; i < manager_->num_events(); ++i)
      events.emplace_back(names_of(manager_->event(i).keys), manager_->event(i).removed);
    manager_->clear_events();
    return events;
  }
  std::vector<Names> lists() const {
    std::vector<Names> lists;
    for (const auto& list : manager_->order().lists) lists.push_back(names_of(list));
    return lists;
  }
  std::vector<std::tuple<nb::bytes, std::uint64_t>> counted() const {
    std::vector<std::tuple<nb::bytes, std::uint64_t>> counted;
    for (const CountedKey& one : manager_->counted()) counted.emplace_back(name_of(one.key), one.count);
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

  nb::object failure_;  // what the policy has raised
  std::unique_ptr<OffloadManager> manager_;
};

}  // namespace

void bind_offload(nb::module_& m) {
  nb::class_<PyOffloadManager> c(m, "OffloadManager",
                                 "Which blocks a lower tier holds, in which slots, and who goes when others need room; it moves nothing. "
                                 "Keys are the names of blocks,\n"
                                 "bytes of at most 32; shorter ones come back with zeros behind them. Not thread-safe.");
  c.def(
      nb::init<std::int64_t, const nb::object&, std::int64_t, std::int64_t, bool>(), nb::arg("num_slots"), nb::arg("policy") = "lru",
      nb::arg("store_threshold") = 0, nb::arg("max_tracked_keys") = 64'000, nb::arg("enable_events") = false,
      "policy: 'lru' or 'arc', as vLLM's; 'arc_paper' or 's3fifo'; or a quire.connectors.EvictionPolicy. From a store_threshold of 2 on a\n"
      "key is stored when it was looked up so often. ValueError for an option out of range.");
  c.def("lookup", &PyOffloadManager::lookup, nb::arg("keys"), "How many of the keys, from the first one on, can be loaded without a gap.");
  c.def("find", &PyOffloadManager::find, nb::arg("keys"), kPlacesDoc);
  c.def("discard", &PyOffloadManager::discard, nb::arg("key"),
        "It leaves, for what was loaded of it was no good. False: it is not there, or in transfer, and stays.");
  c.def("prepare_load", &PyOffloadManager::prepare_load, nb::arg("keys"),
        "The keys' slots, to be read until complete_load with the same keys. ValueError, and no key is held, when one cannot be loaded.");
  c.def("complete_load", &PyOffloadManager::complete_load, nb::arg("keys"), "ValueError when a key is not being loaded.");
  c.def("touch", &PyOffloadManager::touch, nb::arg("keys"), "The keys were used, the first one last.");
  c.def("use", &PyOffloadManager::use, nb::arg("keys"),
        "A request that begins with the keys was admitted, once of each: what 'arc_paper' and 's3fifo' count instead of touches.");
  c.def("prepare_store", &PyOffloadManager::prepare_store, nb::arg("keys"),
        "Those of the keys that have no slot, their slots, and the keys that left for them. None, and nothing changes, when they find no "
        "room.");
  c.def("complete_store", &PyOffloadManager::complete_store, nb::arg("keys"), nb::arg("success") = true,
        "Those that were being stored can be loaded from now on; without success they are removed.");
  c.def("take_events", &PyOffloadManager::take_events, "What happened since the last time: [(keys, whether they left)], oldest first.");
  c.def_prop_ro("num_slots", [](PyOffloadManager& self) { return self.manager().num_slots(); });
  c.def_prop_ro("num_free", [](PyOffloadManager& self) { return self.manager().num_free(); });
  c.def_prop_ro("lists", &PyOffloadManager::lists,
                "The policy's keys from the oldest on. 'lru': all; 'arc', 'arc_paper': t1, t2, b1, b2; 's3fifo': small, main, ghosts.");
  c.def_prop_ro(
      "target_t1_size", [](PyOffloadManager& self) { return self.manager().order().target_t1_size; }, "Of 'arc' and 'arc_paper'.");
  c.def_prop_ro("counted", &PyOffloadManager::counted,
                "What the reuse filter has counted: [(key, lookups)], least recently looked up first.");
  c.def(
      "check_invariants", [](PyOffloadManager& self) { self.manager().check_invariants(); }, "The program stops where one does not hold.");
}

}  // namespace quire::python
