// The registry of named connectors, tiers and eviction policies. The named classes come from quire, from the embedding program, or from
// libraries that are opened at run time. Used by the thread that builds the engine, before the engine runs. User input and libraries may be
// invalid, so every failure returns an error that names the option, and no failure stops the program.
#include "quire/connector_registry.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "core/connect/offload_connector.h"
#include "engine/tiers/connector_joiner.h"
#include "runtime/tier/memory_transport.h"

namespace quire {
namespace {

constexpr const char* kLibraryField = "kv_connector_library";

// Creates the tier CPUOffloadingSpec, which is in host memory.
Result<OffloadTier> make_memory_tier(const ConnectorParameters& parameters, const ConnectorContext& context) {
  ParameterReader reader(parameters, context.read_parameters);
  const auto bytes = reader.number<std::uint64_t>("cpu_bytes_to_use", 0);
  if (Result<void> read = reader.finish(); !read) return std::unexpected(std::move(read.error()));
  if (bytes == 0) return fail(ErrorCode::invalid_argument, "cpu_bytes_to_use", "is required", "set the size of the tier in bytes");
  const std::uint64_t num_places = bytes / context.bytes_per_block;
  if (num_places == 0 || num_places > UINT32_MAX)
    return fail(ErrorCode::invalid_argument, "cpu_bytes_to_use",
                fmt::format("{} bytes have room for {} blocks of {} bytes", bytes, num_places, context.bytes_per_block),
                "use a size that holds 1 to 2^32 blocks");
  auto transport = MemoryTransport::create(
      {.num_places = static_cast<std::uint32_t>(num_places), .block_bytes = context.bytes_per_block, .yields_cores = context.is_measured});
  if (!transport) return std::unexpected(std::move(transport.error()));
  return OffloadTier{.num_places = static_cast<std::uint32_t>(num_places), .transport = *std::move(transport)};
}

template <class Factory>
Result<void> add_to(std::map<std::string, Factory>& known, const std::string& name, Factory factory, const char* field, const char* kind) {
  if (known.emplace(name, std::move(factory)).second) return {};
  return fail(ErrorCode::invalid_argument, field, fmt::format("{} {} is registered already", kind, name), "use another name");
}

std::unexpected<Error> bad_library(const std::string& path, const std::string& what, const char* remedy) {
  return fail(ErrorCode::invalid_argument, kLibraryField, fmt::format("{} {}", path, what), remedy);
}

Result<void> open_library(const std::string& path, ConnectorRegistrar& names) {
  // RTLD_NODELETE keeps the library's code loaded until the process ends, because objects that its connectors have created may still call
  // the code.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return bad_library(path, fmt::format("cannot be opened: {}", dlerror()), "use the path of a shared library");
  const auto version = reinterpret_cast<const char* (*)()>(dlsym(library, "quire_connector_library_version"));
  const auto add = reinterpret_cast<void (*)(ConnectorRegistrar*)>(dlsym(library, "quire_connector_library_add"));
  if (version == nullptr || add == nullptr)
    return bad_library(path, "does not contain quire connectors", "use the macro QUIRE_CONNECTOR_LIBRARY in it (docs/embedding.md)");
  if (version() != kVersion)
    return bad_library(path, fmt::format("was built for version {} of quire, but this is version {}", version(), kVersion),
                       "compile it with the headers of this version");
  add(&names);
  return {};
}

// Records the first error of adding a name, because the library's add function returns no error.
class CheckedNames final : public ConnectorRegistrar {
 public:
  // With `passes_over`, names that are already in use are skipped without an error.
  CheckedNames(ConnectorRegistrar& names, bool passes_over) : names_(names), passes_over_(passes_over) {}
  Result<void> add(const std::string& name, ConnectorFactory factory) override { return noted(names_.add(name, std::move(factory))); }
  Result<void> add_tier(const std::string& name, OffloadTierFactory factory) override {
    return noted(names_.add_tier(name, std::move(factory)));
  }
  Result<void> add_policy(const std::string& name, EvictionPolicyFactory factory) override {
    return noted(names_.add_policy(name, std::move(factory)));
  }
  Result<void> first_error = {};

 private:
  Result<void> noted(Result<void> added) {
    if (first_error && !added && !passes_over_) first_error = added;
    return added;
  }

  ConnectorRegistrar& names_;
  bool passes_over_;
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
      return fail(ErrorCode::invalid_argument, "kv_connector", fmt::format("'{}' is not in the form key=value", part),
                  "use NAME[,key=value...]");
    else if (!parsed.parameters.emplace(part.substr(0, equals), part.substr(equals + 1)).second)
      return fail(ErrorCode::invalid_argument, "kv_connector", fmt::format("{} is set twice", part.substr(0, equals)), "set it once");
  }
  if (parsed.name.empty()) return fail(ErrorCode::invalid_argument, "kv_connector", "has no connector name", "use NAME[,key=value...]");
  return parsed;
}

Result<std::vector<NamedConnector>> expand_connectors(std::span<const NamedConnector> connectors) {
  std::vector<NamedConnector> all;
  for (const NamedConnector& connector : connectors) {
    if (connector.name != "MultiConnector") {
      all.push_back(connector);
      continue;
    }
    const auto list = connector.parameters.find("connectors");
    if (list == connector.parameters.end() || connector.parameters.size() != 1)
      return fail(ErrorCode::invalid_argument, "kv_connector", "MultiConnector takes exactly one parameter, connectors",
                  "use MultiConnector,connectors=NAME:key=value|NAME, or set each connector separately");
    for (const auto part : std::views::split(list->second, '|')) {
      std::string text(part.begin(), part.end());
      std::ranges::replace(text, ':', ',');
      auto parsed = parse_named_connector(text);
      if (!parsed) return std::unexpected(std::move(parsed.error()));
      all.push_back(*std::move(parsed));
    }
  }
  return all;
}

ConnectorRegistry::ConnectorRegistry()
    : factories_{{"OffloadingConnector",
                  [this](const auto& parameters, const auto& context) { return make_offloading(parameters, context); }}},
      tiers_{{"CPUOffloadingSpec", make_memory_tier}} {}

Result<void> ConnectorRegistry::add(const std::string& name, ConnectorFactory factory) {
  return add_to(factories_, name, std::move(factory), "kv_connector", "a connector");
}

Result<void> ConnectorRegistry::add_tier(const std::string& name, OffloadTierFactory factory) {
  return add_to(tiers_, name, std::move(factory), "spec_name", "a tier");
}

Result<void> ConnectorRegistry::add_policy(const std::string& name, EvictionPolicyFactory factory) {
  if (parse_offload_policy(name))
    return fail(ErrorCode::invalid_argument, "eviction_policy", name + " is a built-in policy", "use another name");
  return add_to(policies_, name, std::move(factory), "eviction_policy", "a policy");
}

void ConnectorRegistry::add_library(std::string path, bool is_default) {
  const auto first_default = std::ranges::find(libraries_, true, &Library::is_default);
  libraries_.insert(is_default ? libraries_.end() : first_default, Library{.path = std::move(path), .is_default = is_default});
}

template <class Factory>
Result<Factory> ConnectorRegistry::find(const std::map<std::string, Factory>& known, const std::string& name, const char* field,
                                        const char* kind) {
  while (!known.contains(name) && !libraries_.empty()) {
    const Library library = libraries_.front();
    libraries_.erase(libraries_.begin());
    CheckedNames names(*this, library.is_default);
    if (Result<void> opened = open_library(library.path, names); !opened) return std::unexpected(std::move(opened.error()));
    if (!names.first_error) return std::unexpected(names.first_error.error());
  }
  if (const auto found = known.find(name); found != known.end()) return found->second;
  const auto all = std::views::keys(known);
  return fail(ErrorCode::not_found, field, fmt::format("no {} {} is registered", kind, name),
              fmt::format("registered are {}; others must come from a connector library", fmt::join(all.begin(), all.end(), ", ")));
}

Result<EvictionPolicyFactory> ConnectorRegistry::policy(const std::string& name) {
  const Result<OffloadPolicy> own = parse_offload_policy(name);
  if (own) return EvictionPolicyFactory();
  auto found = find(policies_, name, "eviction_policy", "policy");
  if (found || found.error().code != ErrorCode::not_found) return found;
  Error unknown = own.error();
  const auto others = std::views::keys(policies_);
  if (!policies_.empty())
    unknown.remedy += fmt::format(", or one from a connector library: {}", fmt::join(others.begin(), others.end(), ", "));
  return std::unexpected(std::move(unknown));
}

// Creates OffloadingConnector. A block can be found only after its store has ended, because a transport may handle a failed store in any
// way.
Result<ConnectorAndTransport> ConnectorRegistry::make_offloading(const ConnectorParameters& parameters, const ConnectorContext& context) {
  ParameterReader reader(parameters);
  OffloadConnectorOptions options{.enable_events = context.config->report.enable_kv_events, .hit_after_store_completes = true};
  options.block_size = reader.number("block_size", options.block_size);
  options.eviction_policy = reader.text("eviction_policy", options.eviction_policy);
  options.store_threshold = reader.number("store_threshold", options.store_threshold);
  options.max_tracker_size = reader.number("max_tracker_size", options.max_tracker_size);
  options.join_loads = reader.number("join_loads", 0) != 0;
  if (context.is_measured) options.max_storing_blocks = std::max(1U, context.config->kv.num_blocks / 4);
  options.stores_leading_blocks = context.is_measured;
  const std::string spec = reader.text("spec_name", "CPUOffloadingSpec");
  if (Result<void> read = reader.read(); !read) return std::unexpected(std::move(read.error()));
  auto policy = this->policy(options.eviction_policy);
  if (!policy) return std::unexpected(std::move(policy.error()));
  options.custom_policy = *std::move(policy);
  const Result<OffloadTierFactory> factory = find(tiers_, spec, "spec_name", "tier");
  if (!factory) return std::unexpected(factory.error());
  ConnectorContext of_tier = context;
  of_tier.read_parameters = reader.known();
  Result<OffloadTier> tier = (*factory)(reader.rest(), of_tier);
  if (!tier) return std::unexpected(std::move(tier.error()));
  if (tier->transport == nullptr)
    return fail(ErrorCode::invalid_argument, "spec_name", spec + " did not create a transport", "fix its factory");
  options.cpu_bytes_to_use = tier->num_places * context.bytes_per_block;
  auto connector = OffloadConnector::create(options, *context.config, context.bytes_per_block);
  if (!connector) return std::unexpected(std::move(connector.error()));
  if ((*connector)->ledger().num_slots() == 0)
    return fail(ErrorCode::invalid_argument, "block_size",
                fmt::format("a tier of {} blocks has no room for an offloaded block of {} KV cache blocks", tier->num_places,
                            (*connector)->blocks_per_key()),
                "use a smaller block_size or a larger tier");
  return ConnectorAndTransport{.connector = *std::move(connector), .transport = std::move(tier->transport)};
}

Result<ConnectorAndTransport> ConnectorRegistry::create(const NamedConnector& connector, const ConnectorContext& context) {
  const Result<ConnectorFactory> factory = find(factories_, connector.name, "kv_connector", "connector");
  if (!factory) return std::unexpected(factory.error());
  Result<ConnectorAndTransport> halves = (*factory)(connector.parameters, context);
  if (halves && (halves->connector == nullptr || halves->transport == nullptr))
    return fail(ErrorCode::invalid_argument, "kv_connector",
                fmt::format("{} did not create both a connector and a transport", connector.name), "fix its factory");
  return halves;
}

Result<ConnectorAndTransport> ConnectorRegistry::create(std::span<const NamedConnector> connectors, bool prefers_longest_match,
                                                        const ConnectorContext& context) {
  const auto expanded = expand_connectors(connectors);
  if (!expanded) return std::unexpected(expanded.error());
  if (expanded->empty()) return fail(ErrorCode::invalid_argument, "kv_connector", "no connector is set", "set at least one connector");
  ConnectorJoiner all;
  for (const NamedConnector& connector : *expanded) {
    Result<ConnectorAndTransport> halves = create(connector, context);
    if (!halves) return halves;
    all.add(*std::move(halves));
  }
  return all.join(prefers_longest_match ? CompositeChoice::longest : CompositeChoice::first);
}

std::vector<std::string> ConnectorRegistry::names() const {
  std::vector<std::string> names;
  names.reserve(factories_.size());
  for (const auto& [name, factory] : factories_) names.push_back(name);
  return names;
}

}  // namespace quire
