// Runs the forward pass of a decoder. A pass is a list of phases over all rows (pass.h): in each layer, K and V of all rows are written
// before any row attends. Called by the worker once per step, on the thread that leads the step; the pool's threads share each phase. A
// pass allocates no memory. Rows are independent except for the cache: the other rows of a pass do not change a row's bits.
#include "runtime/model/decoder.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/check.h"
#include "runtime/model/layers/row_layout.h"

namespace quire {
namespace {

// Returns the cache of one layer. `beside` is the layer of the KV layout that has the layer's state, or the encoder's output for the layer.
LayerCache layer_cache(const KvCache& cache, const Workspace& workspace, LayerMemory memory, std::uint32_t layer, std::uint32_t beside) {
  LayerCache found;
  const std::vector<KvLayerLayout>& layers = cache.layout().layers;
  if (memory != LayerMemory::state) {
    found.kv = kv_layer(cache, layer);
    found.attention = &workspace.groups[layers[layer].group];
  }
  if (memory != LayerMemory::attention) {
    found.states = {cache.states(beside), layers[beside].block_stride};
    found.recurrence = &workspace.groups[layers[beside].group];
  } else if (beside != layer) {
    found.cross_kv = kv_layer(cache, beside);
    found.cross = &workspace.groups[layers[beside].group];
  }
  return found;
}

// Checks that the KV cache has the layout of this model; otherwise a pass would misinterpret its bytes. Called before every pass; costs a
// few comparisons per layer.
void check_cache(const ModelConfig& config, const KvLayout& layout, std::span<const std::uint32_t> places, std::uint64_t state_bytes) {
  for (std::uint32_t i = 0; i < config.num_layers; ++i) {
    const KvLayerLayout& layer = layout.layers[i];
    const LayerMemory memory = config.layer_memories.empty() ? LayerMemory::attention : config.layer_memories[i];
    if (memory != LayerMemory::attention)
      QUIRE_CHECK(layout.layers[places[i]].state_bytes == state_bytes, "the KV cache has states of the size that the model needs");
    if (memory == LayerMemory::state) continue;
    QUIRE_CHECK(layer.num_kv_heads == config.num_kv_heads && layer.head_dim == config.head_dim, "the KV cache has the shape of this model");
    QUIRE_CHECK(layout.groups[layer.group].sliding_window() == config.layer(i).window,
                "the KV cache has the sliding windows of this model");
    if (config.cross_positions == 0) continue;
    const KvLayerLayout& cross = layout.layers[places[i]];
    QUIRE_CHECK(
        layout.groups[cross.group].keeps_encoder_output() && cross.num_kv_heads == config.num_kv_heads && cross.head_dim == config.head_dim,
        "the KV cache has the shape of this encoder");
  }
}

std::unique_ptr<ExpertStore> make_store(DecoderWeights& weights) {
  if (!weights.streamed) return nullptr;
  StreamedExperts& streamed = *weights.streamed;
  return std::make_unique<ExpertStore>(streamed.file, streamed.experts, streamed.bytes, std::move(streamed.repack));
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, DecoderWeights weights, const Kernels& kernels, ActivationMode mode,
                 const WorkspaceLimits& limits, ThreadPool& pool)
    : config_(config),
      weights_(std::move(weights)),
      experts_(make_store(weights_)),
      pass_(config, kernels, mode, limits, pool),
      layers_(make_layers(config, weights_)),
      memories_(config.layer_memories.empty() ? std::vector(config.num_layers, LayerMemory::attention) : config.layer_memories),
      logit_norm_(weights_.output_norm),
      frequencies_(config.rope_frequencies()),
      window_frequencies_(config.window_rope_frequencies()) {
  pass_.stored_experts = experts_.get();
  const bool is_long = !weights_.rope_long_factors.empty() && limits.positions > config.rope_original_context;
  const std::vector<float>& factors = is_long ? weights_.rope_long_factors : weights_.rope_factors;
  // The factors depend on the served context, not on the length of a request, so that a request's bits do not depend on other requests.
  for (std::size_t i = 0; i < factors.size(); ++i) frequencies_[i] /= factors[i];
  for (float& weight : logit_norm_) weight /= config.logit_divisor;
  num_kv_layers_ = config.num_layers;
  for (std::uint32_t i = 0; i < config.num_layers; ++i)
    side_layers_.push_back(memories_[i] == LayerMemory::both || config.cross_positions > 0 ? num_kv_layers_++ : i);
  for (const auto& shape : config.state_shapes()) {
    std::uint64_t bytes = sizeof(float);
    for (const std::uint64_t dimension : shape) bytes *= dimension;
    state_bytes_ += bytes;
  }
}

void Decoder::forward(const BatchInput& input, KvCache& cache, const BlockTables& tables, const PassOutput& output, PassHooks* hooks) {
  check(input, cache, output);
  pass_.rows = static_cast<std::uint32_t>(input.tokens.size());
  if (pass_.rows == 0) return;
  pass_.experts = output.experts;
  lay_out(pass_, input, cache.layout(), tables);
  embed(input);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    const LayerCache kept = layer_cache(cache, pass_.workspace, memories_[i], i, side_layers_[i]);
    pass_.layer = i;
    if (hooks != nullptr) hooks->before_attention(i);
    layers_[i].attention->write_kv(pass_, kept);
    if (hooks != nullptr) hooks->after_kv_write(i);
    if (i + 1 == layers_.size()) {
      const bool attends = memories_[i] != LayerMemory::state;
      compact_to_output_rows(pass_, input, tables, attends ? std::optional(cache.layout().layers[i].group) : std::nullopt);
    }
    if (pass_.rows == 0) return;
    layers_[i].attention->attend(pass_, kept);
    if (layers_[i].cross != nullptr) layers_[i].cross->attend(pass_, kept);
    layers_[i].feed_forward->run(pass_);
  }
  if (!output.hidden.empty()) write_hidden(pass_.rows, nullptr, output.hidden);
  if (!output.logits.empty()) write_logits(pass_.rows, nullptr, output.logits);
}

void Decoder::check(const BatchInput& input, const KvCache& cache, const PassOutput& output) const {
  const WorkspaceLimits& limits = pass_.workspace.limits();
  const std::size_t num_outputs = input.output_rows.size();
  QUIRE_CHECK(input.tokens.size() <= limits.rows, "a pass has at most max_num_batched_tokens tokens");
  QUIRE_CHECK(input.sequences.size() <= limits.sequences, "a pass has at most max_num_seqs sequences");
  QUIRE_CHECK(output.logits.empty() || output.logits.size() == num_outputs * config_.vocab_size,
              "the logits buffer has vocab_size values per output row");
  QUIRE_CHECK(output.hidden.empty() || output.hidden.size() == num_outputs * config_.hidden_size,
              "the hidden-state buffer has hidden_size values per output row");
  const std::size_t experts_per_row = std::size_t{config_.num_layers} * config_.experts_per_token;
  QUIRE_CHECK(output.experts.empty() || output.experts.size() == input.tokens.size() * experts_per_row,
              "the expert buffer has one entry per token, layer and chosen expert");
  QUIRE_CHECK(cache.layout().layers.size() == num_kv_layers_ && cache.layout().groups.size() <= limits.groups,
              "the KV cache has the shape of this model");
  check_cache(config_, cache.layout(), side_layers_, state_bytes_);
  std::size_t rows = 0;
  for (const BatchSequence& sequence : input.sequences) {
    rows += sequence.num_tokens;
    QUIRE_CHECK(std::uint64_t{sequence.first_position} + sequence.num_tokens <= limits.positions,
                "all positions are less than max_model_len");
    if (sequence.adapter == nullptr) continue;
    QUIRE_CHECK(sequence.adapter->rank <= limits.max_lora_rank, "the rank of an adapter is at most max_lora_rank");
    QUIRE_CHECK(sequence.adapter->layers.size() == config_.num_layers, "an adapter has as many layers as the model");
  }
  QUIRE_CHECK(rows == input.tokens.size(), "the sequences together have as many tokens as the input");
  for (std::size_t i = 0; i < num_outputs; ++i) {
    QUIRE_CHECK(input.output_rows[i] < rows, "each output row is a row of the pass");
    QUIRE_CHECK(i == 0 || input.output_rows[i - 1] < input.output_rows[i], "output rows are in ascending order");
  }
  QUIRE_CHECK(input.rope_positions.empty() || (config_.has_rope_sections() && input.rope_positions.size() == rows),
              "rotary positions are given for every row, and only if the model uses rotary sections");
  QUIRE_CHECK(input.last_seen.empty() || input.last_seen.size() == rows, "the last visible position is given for every row");
  for (const EmbeddedRow& embedded : input.embedded) QUIRE_CHECK(embedded.row < rows, "each embedding belongs to a row of the pass");
  for (const TokenId token : input.tokens)
    QUIRE_CHECK(std::cmp_less(token, config_.vocab_size) && token >= 0, "each token ID is in the vocabulary");
}

void Decoder::embed(const BatchInput& input) {
  const Activations x = pass_.stream_input();
  pass_.for_rows(pass_.rows, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t row = begin; row < end; ++row) {
      float* hidden = pass_.workspace.hidden + std::size_t{row} * config_.hidden_size;
      embed_row(input, row, hidden);
      compute_angles(input, row);
      pass_.norm_row(hidden, weights_.layers[0].attn_norm, pass_.workspace.input + row * x.stride);
    }
    pass_.kernels.prepare(x, begin, end);
  });
}

void Decoder::embed_row(const BatchInput& input, std::uint32_t row, float* hidden) {
  const auto embedded = std::ranges::lower_bound(input.embedded, row, {}, &EmbeddedRow::row);
  if (embedded != input.embedded.end() && embedded->row == row) {
    std::copy_n(embedded->embedding, config_.hidden_size, hidden);
    return;
  }
  unpack_row(weights_.embedding, static_cast<std::uint32_t>(input.tokens[row]), {hidden, config_.hidden_size});
  adapt_embedding(row, input.tokens[row]);
  pass_.kernels.scale(hidden, config_.embedding_scale, config_.hidden_size);
  if (config_.learned_positions)
    pass_.kernels.add(hidden, weights_.positions.data() + std::size_t{pass_.workspace.positions[row]} * config_.hidden_size,
                      config_.hidden_size);
}

void Decoder::adapt_embedding(std::uint32_t row, TokenId token) {
  const Adapter* adapter = pass_.workspace.adapted.of(row);
  if (adapter == nullptr || adapter->embedding_a.empty()) return;
  const std::uint32_t rank = adapter->embedding_b.columns;
  const RowProduct added{.x = adapter->embedding_a.data() + std::size_t{static_cast<std::uint32_t>(token)} * rank,
                         .x_stride = rank,
                         .y = pass_.workspace.hidden,
                         .y_stride = config_.hidden_size,
                         .rows = &row,
                         .count = 1,
                         .scattered = RowProduct::Side::outputs,
                         .adds = true};
  pass_.kernels.multiply_rows(adapter->embedding_b, added, 0, adapter->embedding_b.num_panels());
}

void Decoder::compute_angles(const BatchInput& input, std::uint32_t row) {
  const std::uint32_t half = config_.rotary_dim / 2;
  const std::size_t at = std::size_t{row} * half;
  const std::uint32_t position = pass_.workspace.positions[row];
  const auto& [cosines, sines] = pass_.workspace.angles;
  if (input.rope_positions.empty()) {
    rope_angles(position, frequencies_, {cosines + at, half}, {sines + at, half});
  } else {
    const RopePosition& own = input.rope_positions[row];
    std::size_t pair = 0;
    for (const auto& [turn, count] : {std::pair(own.time, config_.rope_sections[0]), std::pair(own.row, config_.rope_sections[1]),
                                      std::pair(own.column, config_.rope_sections[2])}) {
      rope_angles(turn, std::span(frequencies_).subspan(pair, count), {cosines + at + pair, count}, {sines + at + pair, count});
      pair += count;
    }
  }
  pass_.kernels.scale(cosines + at, config_.rope_attention_factor, half);
  pass_.kernels.scale(sines + at, config_.rope_attention_factor, half);
  if (window_frequencies_.empty()) return;
  const auto& [window_cosines, window_sines] = pass_.workspace.window_angles;
  rope_angles(position, window_frequencies_, {window_cosines + at, half}, {window_sines + at, half});
}

void Decoder::read_logits(std::span<const std::uint32_t> rows, std::span<float> logits) {
  check_rows(rows, logits.size(), config_.vocab_size);
  if (!rows.empty()) write_logits(static_cast<std::uint32_t>(rows.size()), rows.data(), logits);
}

void Decoder::read_hidden(std::span<const std::uint32_t> rows, std::span<float> hidden) {
  check_rows(rows, hidden.size(), config_.hidden_size);
  if (!rows.empty()) write_hidden(static_cast<std::uint32_t>(rows.size()), rows.data(), hidden);
}

void Decoder::check_rows(std::span<const std::uint32_t> rows, std::size_t num_values, std::uint32_t width) const {
  QUIRE_CHECK(rows.size() <= pass_.workspace.limits().rows, "the number of rows is at most the limit of a pass");
  QUIRE_CHECK(num_values == rows.size() * width, "the buffer has the size of the rows");
  for (const std::uint32_t row : rows) QUIRE_CHECK(row < pass_.rows, "each row is an output row of the last pass");
}

// Writes the normed hidden states of `rows`; null: of the first `count` rows.
void Decoder::write_hidden(std::uint32_t count, const std::uint32_t* rows, std::span<float> hidden) {
  const std::size_t width = config_.hidden_size;
  pass_.for_rows(count, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t i = begin; i < end; ++i)
      pass_.norm_row(pass_.workspace.hidden + (rows == nullptr ? i : rows[i]) * width, weights_.output_norm, hidden.data() + i * width);
  });
}

// Adds the adapters' part of the logits. Row i of the workspace's `input` belongs to row rows[i] of the pass, or to row i if `rows` is
// null.
void Decoder::adapt_logits(std::uint32_t count, const std::uint32_t* rows, std::span<float> logits) {
  const LoraRows& adapted = pass_.workspace.adapted;
  if (std::ranges::none_of(adapted.parts, [](const AdapterPart& part) { return part.adapter->head.any(); })) return;
  pass_.pool.parallel_for(count, 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t i = begin; i < end; ++i) {
      const Adapter* adapter = adapted.of(rows == nullptr ? i : rows[i]);
      if (adapter == nullptr || !adapter->head.any()) continue;
      const LoraPair& head = adapter->head;
      float* inner = adapted.inner + i * adapted.stride();
      const RowProduct projected{.x = pass_.workspace.input, .x_stride = config_.hidden_size, .y = inner, .rows = &i, .count = 1};
      pass_.kernels.multiply_rows(head.a, projected, 0, head.a.num_panels());
      const RowProduct added{.x = inner,
                             .y = logits.data(),
                             .y_stride = config_.vocab_size,
                             .rows = &i,
                             .count = 1,
                             .scattered = RowProduct::Side::outputs,
                             .adds = true};
      pass_.kernels.multiply_rows(head.b, added, 0, head.b.num_panels());
    }
  });
}

void Decoder::write_logits(std::uint32_t count, const std::uint32_t* rows, std::span<float> logits) {
  const std::size_t width = config_.hidden_size;
  const Activations x = pass_.activations(pass_.workspace.input, count, config_.hidden_size, pass_.workspace.hidden_codes);
  pass_.for_rows(count, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t i = begin; i < end; ++i)
      pass_.norm_row(pass_.workspace.hidden + (rows == nullptr ? i : rows[i]) * width, logit_norm_, pass_.workspace.input + i * width);
    pass_.kernels.prepare(x, begin, end);
  });
  pass_.multiply(std::array{Product{&weights_.lm_head(), logits.data(), config_.vocab_size}}, x);
  adapt_logits(count, rows, logits);
  if (config_.logit_soft_cap == 0.0F) return;
  pass_.pool.parallel_for(count, 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t i = begin; i < end; ++i)
      pass_.kernels.soft_cap(logits.data() + std::size_t{i} * config_.vocab_size, config_.logit_soft_cap, config_.vocab_size);
  });
}

}  // namespace quire
