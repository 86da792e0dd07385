// Binds `CoreConfig`: the options of the core, by name, from their option tables (quire/base/core_option_table.h).
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "module.h"
#include "quire/base/core_option_table.h"
#include "quire/core.h"

namespace quire::python {
namespace {

using Class = nb::class_<CoreConfig>;

// Adds the options of a table as attributes of the class, under the names of their fields. `group_of` returns the struct in a CoreConfig to
// which the table belongs.
template <class Table, class GroupOf>
void bind_table(Class& c, const Table& table, const GroupOf& group_of) {
  CoreConfig sample;
  for (const auto& option : table) {
    if (option.value == nullptr) continue;
    const auto bind = [&]<class Value>(const Value* /*type*/) {
      const auto get = [value = option.value, group_of](CoreConfig& self) -> Value& { return *std::get<Value*>(value(group_of(self))); };
      c.def_prop_rw(
          option.info.name().c_str(), [get](CoreConfig& self) -> Value { return get(self); },
          [get](CoreConfig& self, Value value) { get(self) = std::move(value); }, (with_keywords(option.info.help) + ".").c_str());
    };
    std::visit([&](const auto* value) { bind(value); }, option.value(group_of(sample)));
  }
}

void bind_enums(nb::module_& m) {
  nb::enum_<SchedulingPolicy>(m, "SchedulingPolicy", "Order in which waiting requests are admitted and running requests are preempted.")
      .value("FCFS", SchedulingPolicy::fcfs, "In the order of arrival.")
      .value("PRIORITY", SchedulingPolicy::priority, "By priority, then by arrival time; the smallest values go first.")
      .value("CONTINUUM", SchedulingPolicy::continuum, "By job. The blocks of an agent's turn stay cached while its tool runs.");
  nb::enum_<DecisionProfile>(m, "DecisionProfile", "The vLLM version that the core's decisions follow.")
      .value("VLLM_0_19", DecisionProfile::vllm_0_19, "vLLM 0.19.0.")
      .value("VLLM_0_32", DecisionProfile::vllm_0_32, "vLLM 0.32.0. It does not support states (Mamba), forks or swapping.");
  nb::enum_<HashAlgorithm>(m, "HashAlgorithm", "Algorithm of block hashes: CANONICAL, or a value of vLLM's prefix_caching_hash_algo.")
      .value("CANONICAL", HashAlgorithm::canonical, "SHA-256 over quire's encoding, in which every field is tagged.")
      .value("SHA256", HashAlgorithm::sha256, "Equal to vLLM's sha256 (pickle).")
      .value("SHA256_CBOR", HashAlgorithm::sha256_cbor, "Equal to vLLM's sha256_cbor.")
      .value("XXHASH", HashAlgorithm::xxhash, "Equal to vLLM's xxhash (pickle): 16 bytes, not collision-resistant.")
      .value("XXHASH_CBOR", HashAlgorithm::xxhash_cbor, "Equal to vLLM's xxhash_cbor: 16 bytes, not collision-resistant.");
  nb::enum_<KvLoadFailurePolicy>(m, "KvLoadFailurePolicy", "Handling of requests with external blocks that could not be loaded.")
      .value("FAIL", KvLoadFailurePolicy::fail, "The requests end with an error.")
      .value("RECOMPUTE", KvLoadFailurePolicy::recompute, "The core computes their tokens.");
  nb::enum_<PauseState>(m, "PauseState", "Which requests may be scheduled.")
      .value("UNPAUSED", PauseState::unpaused, "All requests.")
      .value("PAUSED_NEW", PauseState::paused_new, "Only running requests; no waiting request is admitted.")
      .value("PAUSED_ALL", PauseState::paused_all, "No request: schedule() plans nothing.");
}

void bind_lists(Class& c) {
  c.def_prop_rw(
      "groups", [](const CoreConfig& self) { return self.kv.groups; },
      [](CoreConfig& self, std::vector<KvCacheGroup> groups) { self.kv.groups = std::move(groups); },
      "Cache groups of the model; default: one group with full attention.");
  c.def_prop_rw(
      "root_hash", [](const CoreConfig& self) { return nb::bytes(self.prefix_cache.root_hash.data(), self.prefix_cache.root_hash.size()); },
      [](CoreConfig& self, const nb::bytes& root) {
        const auto* data = static_cast<const std::uint8_t*>(root.data());
        self.prefix_cache.root_hash.assign(data, data + root.size());
      },
      "Parent hash of every first block (vLLM's NONE_HASH); empty: made from the seed.");
}

// Adds one group of full attention if the caller gave no cache group, which is enough to step the scheduler by hand.
void default_group(CoreConfig& config) {
  FullAttentionSpec spec;
  spec.block_size = config.block_size;
  config.kv.groups.push_back({{"layer"}, spec, {}});
}

void init_config(nb::pointer_and_handle<CoreConfig> self, const nb::kwargs& options) {
  auto* config = new (self.p) CoreConfig();
  nb::inst_mark_ready(self.h);
  config->scheduler.async_scheduling = false;
  config->limits.max_outstanding_plans = 1;
  for (auto [name, value] : options) {
    if (!nb::hasattr(nb::type<CoreConfig>(), name))
      throw nb::type_error(("CoreConfig has no option '" + nb::cast<std::string>(name) + "'; dir(quire.CoreConfig) lists them").c_str());
    nb::setattr(self.h, name, value);
  }
  if (config->scheduler.async_scheduling && !options.contains("max_outstanding_plans")) config->limits.max_outstanding_plans = 2;
  if (!options.contains("groups")) default_group(*config);
}

}  // namespace

void bind_config(nb::module_& m) {
  bind_enums(m);
  Class c(m, "CoreConfig",
          "All options of the core except swapping, without the groups of the C++ class. Set at least num_blocks and\n"
          "max_model_len:\n\n"
          "    CoreConfig(num_blocks=64, block_size=16, max_model_len=1024, max_num_seqs=8)\n\n"
          "Unlike in C++, scheduling is synchronous by default; set async_scheduling=True to change that.");
  c.def("__init__", [](nb::pointer_and_handle<CoreConfig> self, const nb::kwargs& options) { init_config(self, options); });
  visit_core_options([&](const auto& table, const auto& group_of, std::string_view group) {
    if (group != "swap.") bind_table(c, table, group_of);  // swapping needs a host that executes transfers
  });
  bind_lists(c);
  c.def(
      "validate", [](const CoreConfig& self) { value_or_raise(self.validate()); },
      "Raises ValueError if an option is out of range or options exclude each other. The message names the option and the remedy.");
}

}  // namespace quire::python
