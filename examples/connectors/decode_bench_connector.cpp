// Measures decoding speed without computing prompts, like vLLM's DecodeBenchConnector. All tokens of a prompt except the last one count as
// loaded, and their blocks are filled with numbers around fill_mean. The generated text is meaningless.
#include <cstring>
#include <random>
#include <set>

#include "example_connector.h"

namespace examples {
namespace {

class DecodeBenchConnector final : public quire::Connector, public CopyingTransport {
 public:
  DecodeBenchConnector(double mean, double deviation, std::uint32_t block_size)
      : block_size_(block_size), mean_(static_cast<float>(mean)), deviation_(static_cast<float>(deviation)) {}

  quire::ExternalMatch match(const quire::RequestView& request, std::uint32_t num_local_tokens) override {
    if (filled_.contains(request.id)) return {.num_tokens = 0, .load_async = false};  // only once: a preempted request computes its tokens
    first_ = num_local_tokens / block_size_;
    return {.num_tokens = static_cast<std::uint32_t>(request.tokens.size()) - num_local_tokens - 1, .load_async = false};
  }
  void allocated(const quire::RequestView& request, quire::GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    if (num_external_tokens == 0) return;
    filled_.insert(request.id);
    const std::uint32_t count = (num_external_tokens + block_size_ - 1) / block_size_;
    pending_.push_back({request.id, {blocks[0].begin() + first_, blocks[0].begin() + first_ + count}});
  }
  bool finished(const quire::RequestView& request, quire::GroupBlocks /*blocks*/) override {
    filled_.erase(request.id);
    return false;
  }
  void planned(const quire::StepPlan& /*plan*/) override {}
  // The step needs these blocks, so a refused transfer is not tried again: the blocks then keep their old contents.
  void plan_transfers(const quire::StepPlan& /*plan*/, quire::TransferList& transfers) override {
    for (const Fill& fill : std::exchange(pending_, {})) {
      const std::vector<std::uint64_t> places(fill.blocks.size());
      quire::Transfer transfer;
      transfer.request = fill.request;
      transfer.need = quire::TransferNeed::step;
      transfer.blocks = fill.blocks;
      transfer.places = places;
      transfers.add(transfer);
    }
  }
  void step_output() override {}
  bool reset() override { return true; }

 private:
  struct Fill {
    quire::RequestId request;
    std::vector<quire::BlockId> blocks;
  };

  bool load(std::uint64_t /*place*/, const Parts& parts) override {
    for (const auto part : parts) {
      for (std::size_t at = 0; at + pages_.layout->element_bytes() <= part.size(); at += pages_.layout->element_bytes()) {
        const float value = mean_ + deviation_ * normal_(random_);
        // bf16 is the upper half of a float.
        const std::size_t skipped = sizeof value - pages_.layout->element_bytes();
        std::memcpy(&part[at], reinterpret_cast<const std::byte*>(&value) + skipped, pages_.layout->element_bytes());
      }
    }
    return true;
  }
  bool store(std::uint64_t /*place*/, const Parts& /*parts*/) override { return false; }

  const std::uint32_t block_size_;
  const float mean_, deviation_;
  std::uint32_t first_ = 0;
  std::set<quire::RequestId> filled_;
  std::vector<Fill> pending_;
  std::mt19937 random_{1};  // used by the transport
  std::normal_distribution<float> normal_;
};

}  // namespace

quire::Result<quire::ConnectorAndTransport> make_decode_bench(const quire::ConnectorParameters& parameters,
                                                              const quire::ConnectorContext& context) {
  quire::ParameterReader reader(parameters);
  const auto mean = reader.number("fill_mean", 0.015);
  const auto deviation = reader.number("fill_std", 0.0);
  if (auto read = reader.finish(); !read) return std::unexpected(read.error());
  const auto both = std::make_shared<DecodeBenchConnector>(mean, deviation, context.config->block_size);
  return quire::ConnectorAndTransport{.connector = both, .transport = both};
}

}  // namespace examples
