#include "lab/replay/placeholder_tokens.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "base/random.h"
#include "core/journal/call_bytes.h"
#include "quire/hash_function.h"

namespace quire {
namespace {

constexpr TokenId kFirst = TokenId{1} << 30U;  // larger than any token id of a model, so that a placeholder never ends a request

TokenId placeholder(std::uint64_t seed) {
  return kFirst | static_cast<TokenId>(Random(seed).next() >> 34U);
}

// Returns tokens for the prompt and the outputs of a request. The tokens of a block with a known hash are derived from the hash.
std::vector<TokenId> tokens_of(RequestId id, std::size_t size, std::span<const std::uint8_t> names, std::uint32_t block_size) {
  std::vector<TokenId> tokens(size);
  const std::size_t num_named = std::min(names.size() / sizeof(BlockHash), size / block_size) * block_size;
  for (std::size_t i = 0; i < num_named; ++i) {
    const std::size_t at = i % block_size;
    std::uint64_t word = 0;
    std::memcpy(&word, &names[i / block_size * sizeof(BlockHash) + at % 2 * sizeof word], sizeof word);
    tokens[i] = placeholder(word + at);
  }
  // The remaining tokens fill no block that another request could hit. They are random, so that two requests do not share them.
  Random random(id.value);
  for (std::size_t i = num_named; i < size; ++i) tokens[i] = placeholder(random.next());
  return tokens;
}

}  // namespace

void fill_placeholder_tokens(RecordedWorkload& workload, const CoreConfig& config) {
  RecordedCall call;
  for (RecordedWorkload::Arrival& arrival : workload.arrivals) {
    std::vector<TokenId>& outputs = workload.tokens[arrival.id];
    const std::vector<TokenId> tokens =
        tokens_of(arrival.id, arrival.num_prompt_tokens + outputs.size(), workload.names[arrival.id], config.block_size);
    ByteReader in(arrival.call);
    call.read(in);
    core_call::Add changed = std::get<core_call::Add>(call.call());
    changed.request.prompt = std::span(tokens).first(arrival.num_prompt_tokens);
    changed.request.block_hashes = {};
    changed.request.prompt_embeds = {};
    changed.request.repetition = {};
    if (workload.repeated.contains(arrival.id)) changed.request.max_tokens = static_cast<std::uint32_t>(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i] < 0) outputs[i] = tokens[arrival.num_prompt_tokens + i];
    ByteWriter out;
    write_call(out, changed);
    arrival.call = std::move(out.bytes);
  }
}

}  // namespace quire
