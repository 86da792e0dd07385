// Stores blocks in host memory (cpu_bytes_to_use), like vLLM's SimpleCPUOffloadConnector. The least recently used block is evicted first.
#include <list>

#include "example_connector.h"

namespace examples {
namespace {

class SimpleCpuConnector final : public PrefixConnector, public CopyingTransport {
 public:
  SimpleCpuConnector(std::uint64_t num_slots, std::uint32_t block_size) : PrefixConnector(block_size), slots_(num_slots) {
    for (std::uint64_t slot = num_slots; slot > 0; --slot) free_.push_back(slot - 1);
  }

  bool reset() override {
    for (auto& [name, entry] : entries_) entry = {.slot = entry.slot, .num_uses = entry.num_uses, .is_doomed = true, .order = entry.order};
    drop_unused();
    return true;
  }

 private:
  struct Entry {
    std::uint64_t slot = 0;
    std::uint32_t num_uses = 0;  // transfers
    bool is_stored = false;
    bool is_doomed = false;  // removed when its transfers are over
    std::list<std::string>::iterator order = {};
  };

  std::optional<std::uint64_t> find(const std::string& name) override {
    const auto found = entries_.find(name);
    if (found == entries_.end() || !found->second.is_stored) return std::nullopt;
    order_.splice(order_.end(), order_, found->second.order);
    return found->second.slot;
  }
  std::optional<std::uint64_t> reserve(const std::string& name) override {
    if (entries_.contains(name)) return std::nullopt;
    if (free_.empty()) {
      const auto oldest = std::ranges::find_if(order_, [&](const std::string& other) { return entries_.at(other).num_uses == 0; });
      if (oldest == order_.end()) return std::nullopt;
      drop(std::string(*oldest));
    }
    const std::uint64_t slot = free_.back();
    free_.pop_back();
    entries_[name] = {.slot = slot, .num_uses = 1, .order = order_.insert(order_.end(), name)};
    return slot;
  }
  void stored(const std::string& name, bool is_good) override {
    entries_.at(name).is_stored = is_good && !entries_.at(name).is_doomed;
    release(name);
  }
  void hold(const std::string& name) override { ++entries_.at(name).num_uses; }
  void release(const std::string& name) override {
    --entries_.at(name).num_uses;
    drop_unused();
  }
  void forget(const std::string& name) override {
    if (const auto found = entries_.find(name); found != entries_.end()) found->second.is_stored = false;
    drop_unused();
  }
  void drop_unused() {
    for (const std::string& name : std::vector(order_.begin(), order_.end()))
      if (!entries_.at(name).is_stored && entries_.at(name).num_uses == 0) drop(name);
  }
  void drop(const std::string& name) {
    const auto found = entries_.find(name);
    free_.push_back(found->second.slot);
    order_.erase(found->second.order);
    entries_.erase(found);
  }

  bool load(std::uint64_t place, const Parts& parts) override {
    std::size_t at = 0;
    for (const auto part : parts)
      std::ranges::copy(std::span(slots_[place]).subspan(std::exchange(at, at + part.size()), part.size()), part.begin());
    return true;
  }
  bool store(std::uint64_t place, const Parts& parts) override {
    slots_[place].clear();
    for (const auto part : parts) slots_[place].insert(slots_[place].end(), part.begin(), part.end());
    return true;
  }

  std::map<std::string, Entry> entries_;
  std::list<std::string> order_;  // the least recently used first
  std::vector<std::uint64_t> free_;
  std::vector<std::vector<std::byte>> slots_;  // used by the transport
};

}  // namespace

quire::Result<quire::ConnectorAndTransport> make_simple_cpu(const quire::ConnectorParameters& parameters,
                                                            const quire::ConnectorContext& context) {
  quire::ParameterReader reader(parameters);
  const auto bytes = reader.number<std::uint64_t>("cpu_bytes_to_use", std::uint64_t{8} << 30U);
  if (auto read = reader.finish(); !read) return std::unexpected(read.error());
  const auto both = std::make_shared<SimpleCpuConnector>(bytes / context.bytes_per_block, context.config->block_size);
  return quire::ConnectorAndTransport{.connector = both, .transport = both};
}

}  // namespace examples
