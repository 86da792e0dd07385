#pragma once
// Registry of KV connectors, tiers and eviction policies by name: quire's own, names that a host adds, and names from shared libraries. A
// library is opened only when a name is requested that is not known yet.
//
//   const auto registry = std::make_shared<ConnectorRegistry>();
//   registry->add_library("libmine.so");
//   EngineBuilder(options).connectors(registry, {{.name = "MyConnector", .parameters = {{"size", "3"}}}}).build();
//
// One source file of a library contains QUIRE_CONNECTOR_LIBRARY(f), where f(ConnectorRegistrar&) adds the library's names. The library must
// be compiled with the headers of the same version of quire, by a compiler with the same C++ ABI. It need not be linked with quire.
#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/core_config.h"
#include "quire/base/error.h"
#include "quire/base/version.h"
#include "quire/connector.h"
#include "quire/eviction_policy.h"
#include "quire/offload.h"
#include "quire/transport.h"

namespace quire {

// Parameters of a connector as text, by name. If vLLM has the same connector, the names are the names in its kv_connector_extra_config.
using ConnectorParameters = std::map<std::string, std::string>;

// A connector as a user asks for it: its name in the registry, and its parameters.
struct NamedConnector {
  std::string name = {};
  ConnectorParameters parameters = {};
};

// Replaces "MultiConnector,connectors=A:key=value|B" by A and B, as vLLM does, and keeps every other connector. Errors name the field
// `kv_connector`.
QUIRE_API Result<std::vector<NamedConnector>> expand_connectors(std::span<const NamedConnector> connectors);

// Parses "NAME[,key=value...]". Errors name the field `kv_connector`.
QUIRE_API Result<NamedConnector> parse_named_connector(std::string_view text);

// The configuration of the engine for which a connector is created. A view, valid during the call.
struct ConnectorContext {
  const CoreConfig* config = nullptr;
  std::uint64_t bytes_per_block = 0;  // size of a block in all layers of its cache group, for the largest group
  // Makes OffloadingConnector limit its stores and load only if that is faster than computing, as with KvTierPolicy::measured. Only an
  // engine can use it, because only an engine reports the costs of loads to the connector.
  bool is_measured = false;
  // For a tier: the names of the parameters that OffloadingConnector has already read. ParameterReader lists them in its errors.
  std::vector<std::string> read_parameters = {};
};

// A connector in two halves: the scheduler's half decides, and the worker's half (the transport) moves bytes.
struct ConnectorAndTransport {
  std::shared_ptr<Connector> connector = {};
  std::shared_ptr<Transport> transport = {};
};

using ConnectorFactory = std::function<Result<ConnectorAndTransport>(const ConnectorParameters&, const ConnectorContext&)>;

// A tier for OffloadingConnector: the number of slots, and the transport that moves blocks into and out of the slots.
//
// Each slot is outside the KV cache and holds a block of the largest cache group. OffloadingConnector decides which block each slot holds.
struct OffloadTier {
  std::uint32_t num_places = 0;
  // Moves blocks between the KV cache and slots. `Transfer::places` are below `num_places`. A load must return the block that was last
  // stored in its slot, or fail.
  std::shared_ptr<Transport> transport = {};
};

// Creates a tier from the parameters that OffloadingConnector has not read itself.
using OffloadTierFactory = std::function<Result<OffloadTier>(const ConnectorParameters&, const ConnectorContext&)>;

// Receives the names that a host or a library adds. Error: the name is already in use.
class ConnectorRegistrar {
 public:
  virtual Result<void> add(const std::string& name, ConnectorFactory factory) = 0;
  // Adds a tier, which a user selects with OffloadingConnector's parameter `spec_name`.
  virtual Result<void> add_tier(const std::string& name, OffloadTierFactory factory) = 0;
  // Adds an eviction policy, which a user selects with `eviction_policy` of OffloadingConnector or of quire's own tiers.
  virtual Result<void> add_policy(const std::string& name, EvictionPolicyFactory factory) = 0;

 protected:
  ~ConnectorRegistrar() = default;
};

// Finds connectors, tiers and policies by name, and creates them. Not thread-safe: only the thread that sets up the engine uses it. The
// engine keeps the registry alive (shared_ptr) until the engine ends, because objects that a library made must be destroyed before the
// registry.
class QUIRE_API ConnectorRegistry final : public ConnectorRegistrar {
 public:
  // Creates a registry with quire's own names. OffloadingConnector accepts block_size, eviction_policy, store_threshold and
  // max_tracker_size, as in OffloadConnectorOptions, and spec_name. The default tier is CPUOffloadingSpec, which is in host memory
  // (cpu_bytes_to_use).
  ConnectorRegistry();
  ConnectorRegistry(const ConnectorRegistry&) = delete;
  ConnectorRegistry& operator=(const ConnectorRegistry&) = delete;

  Result<void> add(const std::string& name, ConnectorFactory factory) override;
  Result<void> add_tier(const std::string& name, OffloadTierFactory factory) override;
  Result<void> add_policy(const std::string& name, EvictionPolicyFactory factory) override;
  // Registers a library. It is opened when a name is requested that is not known yet, and stays open until the process ends. With
  // `is_default`, the library is opened after all other libraries, and its names that are already in use are ignored.
  void add_library(std::string path, bool is_default = false);

  // Creates a connector. Errors: `kv_connector`: the name is not known (the message lists the known names) or a parameter is wrong;
  // `kv_connector_library`: the file is missing, is not a connector library, or is of another version.
  [[nodiscard]] Result<ConnectorAndTransport> create(const NamedConnector& connector, const ConnectorContext& context);
  // Creates one connector that combines all of them, each with a separate tier. Each connector stores. A request loads from the first
  // connector that has blocks for it or, with `prefers_longest_match`, from the connector that has the most.
  [[nodiscard]] Result<ConnectorAndTransport> create(std::span<const NamedConnector> connectors, bool prefers_longest_match,
                                                     const ConnectorContext& context);

  // Returns a policy's factory, or an empty factory for quire's own policies (parse_offload_policy). Errors: `eviction_policy`: the name is
  // not known; `kv_connector_library`: as for create().
  [[nodiscard]] Result<EvictionPolicyFactory> policy(const std::string& name);

  // Returns the names of connectors in alphabetical order, including names from libraries opened so far.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  // Returns the entry of this name. If the name is not known, opens libraries one by one until one adds it. Error: no library adds the
  // name.
  template <class Factory>
  Result<Factory> find(const std::map<std::string, Factory>& known, const std::string& name, const char* field, const char* kind);
  Result<ConnectorAndTransport> make_offloading(const ConnectorParameters& parameters, const ConnectorContext& context);

  std::map<std::string, ConnectorFactory> factories_;
  std::map<std::string, OffloadTierFactory> tiers_;
  std::map<std::string, EvictionPolicyFactory> policies_;
  struct Library {
    std::string path;
    bool is_default;
  };
  std::vector<Library> libraries_;  // libraries that are not opened yet; default libraries are last
};

// Reads parameters one by one. finish() returns the first error: a value that is not a number in range, or a parameter that was never read.
class ParameterReader {
 public:
  // Creates a reader. `read_before`: names that an earlier reader took from the list; errors list these names, too
  // (ConnectorContext::read_parameters).
  explicit ParameterReader(const ConnectorParameters& parameters, const std::vector<std::string>& read_before = {})
      : parameters_(parameters), known_(read_before.begin(), read_before.end()) {}

  // Returns the parameter's text, or `fallback` if it is not given. Reading marks the name as known to finish() and removes it from rest().
  std::string text(const std::string& name, const std::string& fallback) {
    known_.insert(name);
    const auto found = parameters_.find(name);
    return found == parameters_.end() ? fallback : found->second;
  }
  template <class Number>
  // Returns the parameter as a number. If the text is not a number in range, returns `fallback`, and read() returns the error (the first
  // one, if there are several).
  Number number(const std::string& name, Number fallback) {
    const std::string value = text(name, "");
    if (!parameters_.contains(name)) return fallback;
    Number number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size()) return number;
    if (wrong_.empty()) wrong_ = name + "=" + value + " is not a number in the valid range";
    return fallback;
  }
  // Returns the names read so far, by this reader and by earlier ones.
  [[nodiscard]] std::vector<std::string> known() const { return {known_.begin(), known_.end()}; }
  // Returns the parameters that were not read.
  [[nodiscard]] ConnectorParameters rest() const {
    ConnectorParameters rest;
    for (const auto& [name, value] : parameters_)
      if (!known_.contains(name)) rest.emplace(name, value);
    return rest;
  }
  // Returns the first error among the numbers read so far.
  [[nodiscard]] Result<void> read() const {
    if (!wrong_.empty()) return fail(ErrorCode::invalid_argument, "kv_connector", wrong_, "use a number in the valid range");
    return {};
  }
  [[nodiscard]] Result<void> finish() const {
    if (Result<void> good = read(); !good) return good;
    for (const auto& [name, value] : parameters_) {
      if (known_.contains(name)) continue;
      std::string names;
      for (const std::string& known : known_) names += (names.empty() ? "" : ", ") + known;
      return fail(ErrorCode::invalid_argument, "kv_connector", "unknown parameter " + name,
                  names.empty() ? "remove it: the connector takes no parameters" : "use one of: " + names);
    }
    return {};
  }

 private:
  // The parameters must outlive the reader.
  const ConnectorParameters& parameters_;
  std::set<std::string> known_;
  std::string wrong_;
};

}  // namespace quire

// Write this macro once in a library that adds names. quire checks the library's version first, and calls the second function only if the
// version is its own.
#define QUIRE_CONNECTOR_LIBRARY(add_names)                                                      \
  extern "C" QUIRE_API const char* quire_connector_library_version() {                          \
    return quire::kVersion.data();                                                              \
  }                                                                                             \
  extern "C" QUIRE_API void quire_connector_library_add(quire::ConnectorRegistrar* registrar) { \
    add_names(*registrar);                                                                      \
  }
