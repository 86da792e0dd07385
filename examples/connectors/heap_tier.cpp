// A tier for OffloadingConnector that keeps its blocks in vectors: spec_name=HeapTier,blocks=1000.
#include "example_connector.h"

namespace examples {
namespace {

class HeapTier final : public CopyingTransport {
 public:
  explicit HeapTier(std::uint32_t num_places) : blocks_(num_places) {}

 private:
  bool load(std::uint64_t place, const Parts& parts) override {
    const std::byte* from = blocks_[place].data();
    std::size_t size = 0;
    for (const auto part : parts) size += part.size();
    if (blocks_[place].size() != size) return false;  // the slot is empty, or has a block of another group
    for (const auto part : parts) {
      std::copy_n(from, part.size(), part.data());
      from += part.size();
    }
    return true;
  }
  bool store(std::uint64_t place, const Parts& parts) override {
    blocks_[place].clear();
    for (const auto part : parts) blocks_[place].insert(blocks_[place].end(), part.begin(), part.end());
    return true;
  }

  std::vector<std::vector<std::byte>> blocks_;  // by slot
};

}  // namespace

quire::Result<quire::OffloadTier> make_heap_tier(const quire::ConnectorParameters& parameters, const quire::ConnectorContext& /*context*/) {
  quire::ParameterReader reader(parameters);
  const auto num_places = reader.number<std::uint32_t>("blocks", 0);
  if (auto read = reader.finish(); !read) return std::unexpected(read.error());
  if (num_places == 0) return quire::fail(quire::ErrorCode::invalid_argument, "blocks", "must be at least 1, got 0", "use 1 or more");
  return quire::OffloadTier{.num_places = num_places, .transport = std::make_shared<HeapTier>(num_places)};
}

}  // namespace examples
