#include "lab/replay/stand_ins.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "core/journal/recorded_call.h"
#include "core/journal/write_call.h"

namespace quire {
namespace {

constexpr TokenId kFirst = TokenId{1} << 30U;  // larger than any id of a model, so none of them ends a request

TokenId stand_in(std::uint64_t seed) {
  return kFirst | static_cast<TokenId>(Random(seed).next() >> 34U);
}

// The tokens of a request, prompt and outputs, of whose blocks as many as are known have these names.
std::vector<TokenId> tokens_of(RequestId id, std::size_t size, std::span<const std::uint8_t> names, std::uint32_t block_size) {
  std::vector<TokenId> tokens(size);
  const std::size_t num_named = std::min(names.size() / sizeof(BlockHash), size / block_size) * block_size;
  for (std::size_t i = 0; i < num_named; ++i) {
    const std::size_t at = i % block_size;
    std::uint64_t word = 0;
    std::memcpy(&word, &names[i / block_size * sizeof(BlockHash) + at % 2 * sizeof word], sizeof word);
    tokens[i] = stand_in(word + at);
  }
  // No full block that anybody could find; but two requests with such an end are not to be taken for one.
  Random random(id.value);
  for (std::size_t i = num_named; i < size; ++i) tokens[i] = stand_in(random.next());
  return tokens;
}

// Writes add() with other arguments.
class ChangedAdd final : public CallBytes {
 public:
  void add(const NewRequest& request, const StepInput& input) override {
    NewRequest changed = request;
    tokens.resize(request.prompt.size() + num_outputs);
    changed.prompt = std::span(tokens).first(request.prompt.size());
    changed.block_hashes = {};
    changed.prompt_embeds = {};
    changed.repetition = {};
    if (ended_in_repetition) changed.max_tokens = static_cast<std::uint32_t>(num_outputs);
    CallBytes::add(changed, input);
  }
  std::vector<TokenId> tokens;
  std::size_t num_outputs = 0;
  bool ended_in_repetition = false;
};

}  // namespace

void put_stand_ins(RecordedWorkload& workload, const CoreConfig& config) {
  RecordedCall call;
  for (RecordedWorkload::Arrival& arrival : workload.arrivals) {
    std::vector<TokenId>& outputs = workload.tokens[arrival.id];
    ChangedAdd changed;
    changed.num_outputs = outputs.size();
    changed.ended_in_repetition = workload.repeated.contains(arrival.id);
    changed.tokens = tokens_of(arrival.id, arrival.num_prompt_tokens + outputs.size(), workload.names[arrival.id], config.block_size);
    ByteReader in(arrival.call);
    call.read(in);
    call.tell(changed);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i] < 0) outputs[i] = changed.tokens[arrival.num_prompt_tokens + i];
    arrival.call = std::exchange(changed.out.bytes, {});
  }
}

}  // namespace quire
