#pragma once
// KV connectors, tiers and eviction policies by name: quire's own, those that a host adds, and those of shared libraries, which are opened
// when a name is asked for that nobody else has.
//
//   const auto registry = std::make_shared<ConnectorRegistry>();
//   registry->add_library("libmine.so");
//   EngineBuilder(options).connectors(registry, {{.name = "MyConnector", .parameters = {{"size", "3"}}}}).build();
//
// A library says QUIRE_CONNECTOR_LIBRARY(f) in one of its files, with f(ConnectorNames&) adding its names. It is compiled with the headers
// of the same version of quire, by a compiler with the same C++ interface, and need not be linked with quire.
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

// As text, by name: those of vLLM's kv_connector_extra_config, where it has such a connector.
using ConnectorParameters = std::map<std::string, std::string>;

struct NamedConnector {
  std::string name = {};
  ConnectorParameters parameters = {};
};

// What a connector stands for: "MultiConnector,connectors=A:key=value|B" for A and B, as vLLM's does, any other for itself. Errors name the
// field `kv_connector`.
QUIRE_API Result<std::vector<NamedConnector>> expand_connectors(std::span<const NamedConnector> connectors);

// "NAME[,key=value...]". Errors name the field `kv_connector`.
QUIRE_API Result<NamedConnector> parse_named_connector(std::string_view text);

// What a connector is made for. A view, valid during the call.
struct ConnectorContext {
  const CoreConfig* config = nullptr;
  std::uint64_t bytes_per_block = 0;  // of a block in all layers of its cache group; of the largest group
  // OffloadingConnector stores no more at a time, and gives way to computing, as KvTierPolicy::measured says. What loads cost it is told by
  // the engine alone.
  bool is_measured = false;
};

// The scheduler's half and the worker's.
struct ConnectorHalves {
  std::shared_ptr<Connector> connector = {};
  std::shared_ptr<Transport> transport = {};
};

using ConnectorFactory = std::function<Result<ConnectorHalves>(const ConnectorParameters&, const ConnectorContext&)>;

// // What OffloadingConnector needs from a tier: how many blocks it holds, and who moves them there and back.
//
// Places outside the cache, each for a block of the largest cache group. OffloadingConnector decides what lies where.
struct OffloadTier {
  std::uint32_t num_places = 0;
  // Transfer::places are below num_places. A load gives what was stored last in its place, or fails.
  std::shared_ptr<Transport> transport = {};
};

// Of the connector's parameters it is given those that are not the connector's own.
using OffloadTierFactory = std::function<Result<OffloadTier>(const ConnectorParameters&, const ConnectorContext&)>;

// Where names are added. Errors: the name is taken.
class ConnectorNames {
 public:
  virtual Result<void> add(const std::string& name, ConnectorFactory factory) = 0;
  // For OffloadingConnector's spec_name.
  virtual Result<void> add_tier(const std::string& name, OffloadTierFactory factory) = 0;
  // For eviction_policy, of OffloadingConnector and of quire's own tiers.
  virtual Result<void> add_policy(const std::string& name, EvictionPolicyFactory factory) = 0;

 protected:
  ~ConnectorNames() = default;
};

// Not thread-safe: names are added and asked for by the thread that sets up the engine. The engine holds it (by shared_ptr) to its end,
// since what a library has made must go before the registry does.
class QUIRE_API ConnectorRegistry final : public ConnectorNames {
 public:
  // With quire's own: OffloadingConnector (block_size, eviction_policy, store_threshold, max_tracker_size as in OffloadConnectorOptions;
  // spec_name), which has the tier CPUOffloadingSpec in host memory (cpu_bytes_to_use) unless it is told of another.
  ConnectorRegistry();
  ConnectorRegistry(const ConnectorRegistry&) = delete;
  ConnectorRegistry& operator=(const ConnectorRegistry&) = delete;

  Result<void> add(const std::string& name, ConnectorFactory factory) override;
  Result<void> add_tier(const std::string& name, OffloadTierFactory factory) override;
  Result<void> add_policy(const std::string& name, EvictionPolicyFactory factory) override;
  // Opened when a name is asked for that is not known yet. It stays open to the end of the process. `is_default`: after all others, and
  // what has the name of something that is there already is passed over.
  void add_library(std::string path, bool is_default = false);

  // Errors: `kv_connector`, the name is not known (the message lists those that are) or the parameters are wrong; `kv_connector_library`,
  // a file that is missing, is no such library, or is of another version.
  [[nodiscard]] Result<ConnectorHalves> create(const NamedConnector& connector, const ConnectorContext& context);
  // All of them as one, each with a tier of its own: all store, and a request loads from the first that has something, or from the one that
  // has most.
  [[nodiscard]] Result<ConnectorHalves> create(std::span<const NamedConnector> connectors, bool loads_longest,
                                               const ConnectorContext& context);

  // Empty for quire's own (parse_offload_policy). Errors: `eviction_policy`, the name is not known; those of libraries.
  [[nodiscard]] Result<EvictionPolicyFactory> policy(const std::string& name);

  // Of connectors, in alphabetical order; of libraries, those that were opened.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  // What has this name. Errors: no library has it either.
  template <class Factory>
  Result<Factory> find(const std::map<std::string, Factory>& known, const std::string& name, const char* field, const char* kind);
  Result<ConnectorHalves> make_offloading(const ConnectorParameters& parameters, const ConnectorContext& context);

  std::map<std::string, ConnectorFactory> factories_;
  std::map<std::string, OffloadTierFactory> tiers_;
  std::map<std::string, EvictionPolicyFactory> policies_;
  struct Library {
    std::string path;
    bool is_default;
  };
  std::vector<Library> libraries_;  // not opened yet; those that are default last
};

// Reads parameters one by one; finish() says what was wrong with them: a value that is no such thing, or a name that nobody has read.
class ParameterReader {
 public:
  explicit ParameterReader(const ConnectorParameters& parameters) : parameters_(parameters) {}

  // `fallback` where the parameter is not given. Reading a name makes it known to finish() and takes it out of rest().
  std::string text(const std::string& name, const std::string& fallback) {
    known_.insert(name);
    const auto found = parameters_.find(name);
    return found == parameters_.end() ? fallback : found->second;
  }
  template <class Number>
  // The whole text must be one number that fits; else `fallback`, and read() tells of the first one that was wrong.
  Number number(const std::string& name, Number fallback) {
    const std::string value = text(name, "");
    if (!parameters_.contains(name)) return fallback;
    Number number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size()) return number;
    if (wrong_.empty()) wrong_ = name + "=" + value + " is no number in range";
    return fallback;
  }
  // Those that nobody has read.
  [[nodiscard]] ConnectorParameters rest() const {
    ConnectorParameters rest;
    for (const auto& [name, value] : parameters_)
      if (!known_.contains(name)) rest.emplace(name, value);
    return rest;
  }
  // What was wrong with those that were read.
  [[nodiscard]] Result<void> read() const {
    if (!wrong_.empty()) return fail(ErrorCode::invalid_argument, "kv_connector", wrong_, "give a number");
    return {};
  }
  [[nodiscard]] Result<void> finish() const {
    if (Result<void> good = read(); !good) return good;
    for (const auto& [name, value] : parameters_) {
      if (known_.contains(name)) continue;
      std::string names;
      for (const std::string& known : known_) names += (names.empty() ? "" : ", ") + known;
      return fail(ErrorCode::invalid_argument, "kv_connector", "it knows no parameter " + name,
                  names.empty() ? "give none" : "it knows " + names);
    }
    return {};
  }

 private:
  // Not copied: the parameters outlive the reader.
  const ConnectorParameters& parameters_;
  std::set<std::string> known_;
  std::string wrong_;
};

}  // namespace quire

// Once in a library that adds names. The version is asked first, and the other function not at all where it is another one.
#define QUIRE_CONNECTOR_LIBRARY(add_names)                                              \
  extern "C" QUIRE_API const char* quire_connector_library_version() {                  \
    return quire::kVersion.data();                                                      \
  }                                                                                     \
  extern "C" QUIRE_API void quire_connector_library_add(quire::ConnectorNames* names) { \
    add_names(*names);                                                                  \
  }
