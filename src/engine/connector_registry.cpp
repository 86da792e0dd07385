#include "quire/connector_registry.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/connect/composite_connector.h"
#include "core/connect/offload_connector.h"
#include "runtime/tier/memory_transport.h"
#include "runtime/transport/routed_transport.h"

namespace quire {
namespace {

constexpr const char* kLibraryField = "kv_connector_library";

// The tier in memory. A block is found when its store is over, whatever the transport makes of a store that fails.
Result<ConnectorHalves> make_offloading(const ConnectorParameters& parameters, const ConnectorContext& context) {
  ParameterReader reader(parameters);
  OffloadConnectorOptions options{.found_when_stored = true};
  options.cpu_bytes_to_use = reader.number("cpu_bytes_to_use", options.cpu_bytes_to_use);
  options.block_size = reader.number("block_size", options.block_size);
  options.eviction_policy = reader.text("eviction_policy", options.eviction_policy);
  options.store_threshold = reader.number("store_threshold", options.store_threshold);
  options.max_tracker_size = reader.number("max_tracker_size", options.max_tracker_size);
  if (Result<void> read = reader.finish(); !read) return std::unexpected(std::move(read.error()));
  auto connector = OffloadConnector::create(options, *context.config, context.bytes_per_block);
  if (!connector) return std::unexpected(std::move(connector.error()));
  const std::uint32_t num_places = (*connector)->ledger().num_slots() * (*connector)->factor();
  if (num_places == 0)
    return fail(
        ErrorCode::invalid_argument, "cpu_bytes_to_use",
        fmt::format("{} bytes have no room for a block of {}", options.cpu_bytes_to_use, context.bytes_per_block * (*connector)->factor()),
        "give more");
  auto transport = MemoryTransport::create({.num_places = num_places, .block_bytes = context.bytes_per_block});
  if (!transport) return std::unexpected(std::move(transport.error()));
  return ConnectorHalves{.connector = *std::move(connector), .transport = *std::move(transport)};
}

std::unexpected<Error> bad_library(const std::string& path, const std::string& what, const char* remedy) {
  return fail(ErrorCode::invalid_argument, kLibraryField, fmt::format("{} {}", path, what), remedy);
}

Result<void> open_library(const std::string& path, ConnectorNames& names) {
  // Its code stays to the end: whatever a connector of it leaves behind may be called then.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return bad_library(path, fmt::format("cannot be opened: {}", dlerror()), "give the path of a shared library");
  const auto version = reinterpret_cast<const char* (*)()>(dlsym(library, "quire_connector_library_version"));
  const auto add = reinterpret_cast<void (*)(ConnectorNames*)>(dlsym(library, "quire_connector_library_add"));
  if (version == nullptr || add == nullptr)
    return bad_library(path, "has no connectors of quire's", "say QUIRE_CONNECTOR_LIBRARY in it (docs/embedding.md)");
  if (version() != kVersion)
    return bad_library(path, fmt::format("is for version {} of quire, and this is {}", version(), kVersion),
                       "compile it with this version's headers");
  add(&names);
  return {};
}

// Remembers the first name that could not be added, which a library has no way to tell of.
class CheckedNames final : public ConnectorNames {
 public:
  explicit CheckedNames(ConnectorNames& names) : names_(names) {}
  Result<void> add(const std::string& name, ConnectorFactory factory) override {
    Result<void> added = names_.add(name, std::move(factory));
    if (first_error && !added) first_error = added;
    return added;
  }
  Result<void> first_error = {};

 private:
  ConnectorNames& names_;
};

}  // namespace

Result<NamedConnector> parse_named_connector(std::string_view text) {
  NamedConnector parsed;
  for (bool is_name = true; is_name || !text.empty(); is_name = false) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t equals = part.find('=');
    if (is_name)
      parsed.name = part;
    else if (equals == std::string_view::npos || equals == 0)
      return fail(ErrorCode::invalid_argument, "kv_connector", fmt::format("'{}' is no key=value", part), "give NAME[,key=value...]");
    else if (!parsed.parameters.emplace(part.substr(0, equals), part.substr(equals + 1)).second)
      return fail(ErrorCode::invalid_argument, "kv_connector", fmt::format("{} is given twice", part.substr(0, equals)), "give it once");
  }
  if (parsed.name.empty()) return fail(ErrorCode::invalid_argument, "kv_connector", "it has no name", "give NAME[,key=value...]");
  return parsed;
}

ConnectorRegistry::ConnectorRegistry() : factories_{{"OffloadingConnector", make_offloading}} {}

Result<void> ConnectorRegistry::add(const std::string& name, ConnectorFactory factory) {
  if (factories_.emplace(name, std::move(factory)).second) return {};
  return fail(ErrorCode::invalid_argument, "kv_connector", fmt::format("there is a connector {} already", name), "give it another name");
}

void ConnectorRegistry::add_library(std::string path) {
  libraries_.push_back(std::move(path));
}

const ConnectorFactory* ConnectorRegistry::find(const std::string& name) const {
  const auto found = factories_.find(name);
  return found == factories_.end() ? nullptr : &found->second;
}

Result<const ConnectorFactory*> ConnectorRegistry::find_or_open(const std::string& name) {
  while (find(name) == nullptr && !libraries_.empty()) {
    const std::string path = libraries_.front();
    libraries_.erase(libraries_.begin());
    CheckedNames names(*this);
    if (Result<void> opened = open_library(path, names); !opened) return std::unexpected(std::move(opened.error()));
    if (!names.first_error) return std::unexpected(names.first_error.error());
  }
  if (const ConnectorFactory* const factory = find(name); factory != nullptr) return factory;
  return fail(ErrorCode::not_found, "kv_connector", fmt::format("there is no connector {}", name),
              fmt::format("there are {}; others come from a library", fmt::join(this->names(), ", ")));
}

Result<ConnectorHalves> ConnectorRegistry::create(const NamedConnector& connector, const ConnectorContext& context) {
  const Result<const ConnectorFactory*> factory = find_or_open(connector.name);
  if (!factory) return std::unexpected(factory.error());
  Result<ConnectorHalves> halves = (**factory)(connector.parameters, context);
  if (halves && (halves->connector == nullptr || halves->transport == nullptr))
    return fail(ErrorCode::invalid_argument, "kv_connector", fmt::format("{} has made only a half", connector.name), "mend its factory");
  return halves;
}

Result<ConnectorHalves> ConnectorRegistry::create(std::span<const NamedConnector> connectors, bool loads_longest,
                                                  const ConnectorContext& context) {
  if (connectors.empty()) return fail(ErrorCode::invalid_argument, "kv_connector", "none is given", "give one");
  if (connectors.size() == 1) return create(connectors.front(), context);
  std::vector<CompositeMember> members;
  const auto routed = std::make_shared<RoutedTransport>();
  for (const NamedConnector& connector : connectors) {
    Result<ConnectorHalves> halves = create(connector, context);
    if (!halves) return halves;
    const auto tier = static_cast<std::uint32_t>(members.size());
    members.push_back({.connector = std::move(halves->connector), .tier = tier});
    routed->add(tier, std::move(halves->transport));
  }
  const CompositeChoice choice = loads_longest ? CompositeChoice::longest : CompositeChoice::first;
  return ConnectorHalves{.connector = std::make_shared<CompositeConnector>(std::move(members), choice), .transport = routed};
}

std::vector<std::string> ConnectorRegistry::names() const {
  std::vector<std::string> names;
  names.reserve(factories_.size());
  for (const auto& [name, factory] : factories_) names.push_back(name);
  return names;
}

}  // namespace quire
