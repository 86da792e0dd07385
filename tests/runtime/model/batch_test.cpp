// A row's logits depend only on its own history. They have the same bits whatever else is in the pass and however the history was split.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "runtime/kernel/kernel.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"
#include "runtime/model/weights/weights.h"

namespace quire {
namespace {

constexpr std::uint32_t kTokens = 90;

std::vector<TokenId> prompt_of(std::uint64_t seed, std::uint32_t tokens = kTokens) {
  Random random(seed);
  std::vector<TokenId> prompt(tokens);
  for (TokenId& token : prompt) token = static_cast<TokenId>(random.below(300));
  return prompt;
}

ModelConfig config_of(const std::string& architecture) {
  ModelConfig config = tiny::small_llama();
  config.architecture = architecture;
  config.qkv_bias = architecture == "qwen2";
  config.qk_norm = architecture == "qwen3" ? QkNorm::per_head : architecture == "olmo2" ? QkNorm::whole : QkNorm::none;
  config.pre_norms = architecture != "olmo2";
  config.post_norms = architecture == "olmo2";
  config.tied_embeddings = architecture == "qwen2";
  if (architecture == "smollm3") config.num_layers = 4;
  if (architecture == "mistral") config.sliding_windows = {20, 20};
  if (architecture == "gemma2") {
    config.sliding_windows = {20, 0};
    config.post_norms = true;
    config.attention_soft_cap = 4.0F;
    config.logit_soft_cap = 20.0F;
  }
  if (architecture == "granite") {
    config.embedding_scale = 12.0F;
    config.residual_scale = 0.22F;
    config.logit_divisor = 8.0F;
  }
  if (architecture == "gpt_oss") return tiny::small_gpt_oss();
  if (architecture.starts_with("deepseek")) return tiny::small_deepseek(architecture);
  if (architecture.ends_with("moe")) config = tiny::small_mixture(architecture);
  if (architecture == "lfm2") config = tiny::small_lfm2();
  if (architecture == "granitemoehybrid" || architecture == "falcon_h1") config = tiny::small_mamba(architecture);
  if (architecture == "phi3") {
    config.fused_qkv = config.fused_gate_up = true;
    config.rotary_dim = 48;
    config.rope_scaling = RopeScaling::longrope;
    config.rope_original_context = 32;
    config.rope_attention_factor = 1.19F;
    config.rope_short_factors.assign(24, 1.1F);
    config.rope_long_factors.assign(24, 3.7F);
  }
  return config;
}

// Returns the logits of every position, with the whole prompt in one pass and no other request.
std::vector<float> alone(const std::string& path, const tiny::RigOptions& options, const std::vector<TokenId>& prompt) {
  tiny::Rig rig(path, options);
  const auto tokens = static_cast<std::uint32_t>(prompt.size());
  rig.give_blocks(Slot{0}, tiny::blocks_for(tokens, options.block_size, 1));
  return rig.run(prompt, {{Slot{0}, 0, tokens}});
}

void expect_same(std::span<const float> expected, std::span<const float> actual, const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size());
  EXPECT_EQ(std::memcmp(expected.data(), actual.data(), expected.size_bytes()), 0) << what;
}

struct Variant {
  std::string architecture;
  std::string type;
  ActivationMode activations;
  KvDtype kv;
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{{"llama", "mixed", ActivationMode::int16, KvDtype::bf16},
                                        {"qwen2", "Q4_1", ActivationMode::int8, KvDtype::bf16},
                                        {"qwen3", "F32", ActivationMode::f32, KvDtype::f32},
                                        {"llama", "BF16", ActivationMode::int16, KvDtype::bf16},
                                        {"qwen3", "BF16", ActivationMode::bf16, KvDtype::bf16},
                                        {"qwen3", "Q8_0", ActivationMode::f32, KvDtype::bf16},
                                        {"phi3", "Q3_K", ActivationMode::int16, KvDtype::bf16},
                                        {"granite", "IQ4_XS", ActivationMode::int16, KvDtype::f32},
                                        {"smollm3", "IQ4_NL", ActivationMode::int8, KvDtype::bf16},
                                        {"olmo2", "Q2_K", ActivationMode::int16, KvDtype::bf16},
                                        {"mistral", "Q4_1", ActivationMode::int16, KvDtype::int8},
                                        {"gemma2", "mixed", ActivationMode::int16, KvDtype::int8},
                                        {"gemma2", "F32", ActivationMode::f32, KvDtype::f32},
                                        {"qwen2_moe", "Q4_1", ActivationMode::int16, KvDtype::bf16},
                                        {"qwen3_moe", "F32", ActivationMode::f32, KvDtype::f32},
                                        {"olmoe", "Q8_0", ActivationMode::int8, KvDtype::bf16},
                                        {"gpt_oss", "MXFP4", ActivationMode::int16, KvDtype::bf16},
                                        {"deepseek_v2", "Q8_0", ActivationMode::int16, KvDtype::int8},
                                        {"deepseek_v3", "F32", ActivationMode::f32, KvDtype::f32},
                                        {"gpt_oss", "F32", ActivationMode::f32, KvDtype::f32},
                                        {"lfm2", "Q8_0", ActivationMode::int16, KvDtype::bf16},
                                        {"lfm2", "F32", ActivationMode::f32, KvDtype::f32},
                                        {"granitemoehybrid", "Q4_1", ActivationMode::int8, KvDtype::int8},
                                        {"falcon_h1", "BF16", ActivationMode::int16, KvDtype::bf16}};
  return all;
}

class Batches : public testing::Test {
 protected:
  template <class Body>
  void for_each_variant(Body body) {
    for (const Variant& v : variants()) {
      SCOPED_TRACE(v.architecture + " " + v.type);
      const std::string path = folder_.file("model.gguf");
      tiny::write_gguf(path, config_of(v.architecture), v.type);
      body(path, tiny::RigOptions{.activations = v.activations, .kv = v.kv});
    }
  }
  tiny::TempFolder folder_;
};

TEST_F(Batches, SplittingThePromptChangesNothing) {
  for_each_variant([](const std::string& path, const tiny::RigOptions& options) {
    const auto prompt = prompt_of(1);
    const auto expected = alone(path, options, prompt);
    const std::size_t vocab = expected.size() / prompt.size();
    for (const std::uint32_t chunk : {1U, 7U, 16U, 33U}) {
      tiny::Rig rig(path, options);
      rig.give_blocks(Slot{2}, tiny::blocks_for(kTokens, 16, 20, 3));
      for (std::uint32_t done = 0; done < kTokens; done += chunk) {
        const std::uint32_t count = std::min(chunk, kTokens - done);
        const auto logits = rig.run(std::span(prompt).subspan(done, count), {{Slot{2}, done, count}});
        expect_same(std::span(expected).subspan(done * vocab, count * vocab), logits, "chunk " + std::to_string(chunk));
      }
    }
  });
}

TEST_F(Batches, BlockSizeAndThreadsChangeNothing) {
  for_each_variant([](const std::string& path, const tiny::RigOptions& options) {
    const auto prompt = prompt_of(2);
    const auto expected = alone(path, options, prompt);
    for (const std::uint32_t block_size : {1U, 8U, 128U}) {
      tiny::RigOptions other = options;
      other.block_size = block_size;
      other.num_blocks = 130;
      other.num_threads = block_size == 8 ? 4 : 1;
      expect_same(expected, alone(path, other, prompt), "block size " + std::to_string(block_size));
      other.kernel_block_size = std::max(block_size / 4, 1U);
      expect_same(expected, alone(path, other, prompt), "kernel blocks in blocks of " + std::to_string(block_size));
    }
  });
}

// Requests with shared first blocks run a token at a time. Each pass has some of them, so that other requests share in each pass.
TEST_F(Batches, SharedPrefixReadsChangeNothing) {
  constexpr std::uint32_t kRequests = 7, kShared = 64;
  for_each_variant([](const std::string& path, tiny::RigOptions options) {
    options.num_threads = 1;
    tiny::Rig rig(path, options);
    if (rig.model().info().has_states()) return;  // each request would need separate states
    const auto common = prompt_of(20, kShared);
    std::vector<std::vector<TokenId>> prompts;
    std::vector<std::vector<float>> expected;
    rig.give_blocks(Slot{0}, tiny::blocks_for(kShared, 16, 1));
    rig.run(common, {{Slot{0}, 0, kShared}});
    for (std::uint32_t r = 0; r < kRequests; ++r) {
      const auto own = prompt_of(30 + r, 20);
      prompts.push_back(common);
      prompts[r].insert(prompts[r].end(), own.begin(), own.end());
      expected.push_back(alone(path, options, prompts[r]));
      auto blocks = tiny::blocks_for(kShared, 16, 1);
      for (const BlockId block : tiny::blocks_for(20, 16, 10 + r, kRequests)) blocks.push_back(block);
      rig.give_blocks(Slot{r + 1}, blocks);
    }
    Random random(4);
    std::vector<std::uint32_t> done(kRequests, std::uint32_t{kShared});
    while (std::ranges::min(done) < kShared + 20) {
      std::vector<TokenId> tokens;
      std::vector<BatchSequence> sequences;
      std::vector<std::uint32_t> members;
      for (std::uint32_t r = 0; r < kRequests; ++r) {
        if (done[r] == kShared + 20 || random.chance(0.3)) continue;
        sequences.push_back({Slot{r + 1}, done[r], 1});
        members.push_back(r);
        tokens.push_back(prompts[r][done[r]]);
      }
      const auto logits = rig.run(tokens, sequences);
      for (std::size_t i = 0; i < members.size(); ++i) {
        const std::uint32_t r = members[i];
        expect_same(std::span(expected[r]).subspan(done[r]++ * rig.vocab(), rig.vocab()),
                    std::span(logits).subspan(i * rig.vocab(), rig.vocab()), "request " + std::to_string(r));
      }
    }
  });
}

// Requests come and go at random and prefill in random chunks next to the decodes of others; blocks are assigned at random.
TEST_F(Batches, OtherRequestsChangeNothing) {
  constexpr std::uint32_t kRequests = 6;
  for_each_variant([](const std::string& path, tiny::RigOptions options) {
    options.num_blocks = kRequests * 6 + 1;
    std::vector<std::vector<TokenId>> prompts;
    std::vector<std::vector<float>> expected;
    for (std::uint32_t r = 0; r < kRequests; ++r) {
      prompts.push_back(prompt_of(10 + r, 20 + 14 * r));
      expected.push_back(alone(path, options, prompts[r]));
    }
    tiny::Rig rig(path, options);
    Random random(3);
    for (std::uint32_t r = 0; r < kRequests; ++r)
      rig.give_blocks(Slot{r * 40 + 5}, tiny::blocks_for(static_cast<std::uint32_t>(prompts[r].size()), 16, 1 + r, kRequests));
    std::vector<std::uint32_t> done(kRequests);
    for (bool left = true; left;) {
      left = false;
      std::vector<TokenId> tokens;
      std::vector<BatchSequence> sequences;
      std::vector<std::uint32_t> members;
      for (std::uint32_t r = 0; r < kRequests; ++r) {
        const std::uint32_t rest = static_cast<std::uint32_t>(prompts[r].size()) - done[r];
        left = left || rest > 0;
        if (rest == 0 || random.chance(0.3)) continue;
        const auto count = random.chance(0.5) ? 1 : static_cast<std::uint32_t>(random.between(1, rest));
        sequences.push_back({Slot{r * 40 + 5}, done[r], count});
        members.push_back(r);
        tokens.insert(tokens.end(), prompts[r].begin() + done[r], prompts[r].begin() + done[r] + count);
      }
      const auto logits = rig.run(tokens, sequences);
      std::size_t row = 0;
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const std::uint32_t count = sequences[i].num_tokens;
        expect_same(std::span(expected[members[i]]).subspan(done[members[i]] * rig.vocab(), count * rig.vocab()),
                    std::span(logits).subspan(row * rig.vocab(), count * rig.vocab()), "request " + std::to_string(members[i]));
        row += count;
        done[members[i]] += count;
      }
    }
  });
}

// There are enough rows for several tiles of the feed-forward part.
TEST_F(Batches, ManyRowsEqualFewRows) {
  const std::string path = folder_.file("model.gguf");
  ModelConfig config = tiny::small_llama();
  config.context_length = 700;
  tiny::write_gguf(path, config, "Q4_K");
  const tiny::RigOptions options{
      .activations = ActivationMode::int16, .kv = KvDtype::bf16, .max_rows = 700, .num_slots = 700, .max_tokens = 700};
  const auto prompt = prompt_of(4, 700);
  const auto expected = alone(path, options, prompt);
  tiny::Rig rig(path, options);
  rig.give_blocks(Slot{0}, tiny::blocks_for(700, 16, 5));
  std::vector<float> logits;
  for (std::uint32_t done = 0; done < 700; done += 100) {
    const auto part = rig.run(std::span(prompt).subspan(done, 100), {{Slot{0}, done, 100}});
    logits.insert(logits.end(), part.begin(), part.end());
  }
  expect_same(expected, logits, "seven passes of 100");
}

// Threads share a single decode row of a long context in segments; with a window, in the segments that the window reaches. A row within a
// chunk, or on one thread, is not shared.
TEST_F(Batches, ThreadsThatShareALongRowChangeNothing) {
  constexpr std::uint32_t kLong = 1100;
  const auto prompt = prompt_of(25, kLong);
  const std::string path = folder_.file("model.gguf");
  for (const auto& [architecture, kv] : {std::pair("llama", KvDtype::bf16), {"llama", KvDtype::f32}, {"gemma2", KvDtype::bf16}}) {
    SCOPED_TRACE(architecture);
    ModelConfig config = config_of(architecture);
    config.context_length = kLong;
    if (!config.sliding_windows.empty()) config.sliding_windows = {300, 0};
    tiny::write_gguf(path, config, "Q8_0");
    tiny::RigOptions options{.kv = kv, .num_threads = 1, .max_rows = kLong, .num_slots = kLong, .max_tokens = kLong, .num_blocks = 70};
    const auto expected = alone(path, options, prompt);
    options.num_threads = 4;
    tiny::Rig rig(path, options);
    rig.give_blocks(Slot{0}, tiny::blocks_for(kLong, 16, 1));
    std::uint32_t done = 500;
    rig.run(std::span(prompt).first(done), {{Slot{0}, 0, done}});
    while (done < kLong) {
      const std::uint32_t count = done % 100 < 30 ? 1 : 70;
      const auto logits = rig.run(std::span(prompt).subspan(done, count), {{Slot{0}, done, count}});
      expect_same(std::span(expected).subspan(done * rig.vocab(), count * rig.vocab()), logits, "row " + std::to_string(done));
      done += count;
    }
  }
}

TEST_F(Batches, OnlyTheRequestedRowsGetLogits) {
  const std::string path = folder_.file("model.gguf");
  for (const char* architecture : {"llama", "lfm2", "granitemoehybrid", "falcon_h1"}) {
    SCOPED_TRACE(architecture);
    tiny::write_gguf(path, config_of(architecture), "Q8_0");
    const tiny::RigOptions options{.activations = ActivationMode::int16};
    const auto prompt = prompt_of(5);
    const auto expected = alone(path, options, prompt);
    tiny::Rig rig(path, options);
    rig.give_blocks(Slot{0}, tiny::blocks_for(kTokens, 16, 1));
    const std::vector<BatchSequence> sequences{{Slot{0}, 0, kTokens}};
    const std::vector<std::uint32_t> rows{3, 50, kTokens - 1};
    std::vector<float> logits(rows.size() * rig.vocab());
    rig.model().forward({prompt, sequences, rows}, rig.cache(), rig.tables(), {logits});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      expect_same(std::span(expected).subspan(rows[i] * rig.vocab(), rig.vocab()), std::span(logits).subspan(i * rig.vocab(), rig.vocab()),
                  "row");
    }
    rig.model().forward({prompt, sequences, {}}, rig.cache(), rig.tables(), {});
  }
}

// Hidden rows are the inputs of the logits, before the model's divisor. They must not depend on which other outputs are requested.
TEST_F(Batches, HiddenRowsAreTheInputsOfTheLogits) {
  const std::string path = folder_.file("model.gguf");
  for (const auto& [architecture, divisor] : {std::pair("llama", 1.0), {"granite", 8.0}, {"qwen2", 1.0}}) {
    SCOPED_TRACE(architecture);
    tiny::write_gguf(path, config_of(architecture), "F32");
    const auto prompt = prompt_of(8);
    const std::vector<BatchSequence> sequences{{Slot{0}, 0, kTokens}};
    const auto hidden_of = [&](const std::vector<std::uint32_t>& rows, std::span<float> logits) {
      tiny::Rig rig(path, {});
      rig.give_blocks(Slot{0}, tiny::blocks_for(kTokens, 16, 1));
      std::vector<float> hidden(rows.size() * rig.model().info().hidden_size);
      rig.model().forward({prompt, sequences, rows}, rig.cache(), rig.tables(), {logits, hidden});
      return hidden;
    };
    std::vector<std::uint32_t> all(kTokens);
    for (std::uint32_t i = 0; i < kTokens; ++i) all[i] = i;
    const auto expected = hidden_of(all, {});
    const std::size_t width = expected.size() / kTokens;
    const auto file = ModelFile::open(path);
    ASSERT_TRUE(file);
    ThreadPool pool(1);
    const auto weights = load_weights(*file, pool);
    ASSERT_TRUE(weights);
    const PackedMatrix& head = weights->lm_head();
    std::vector<float> logits(2 * std::size_t{head.rows}), weight(width);
    const auto some = hidden_of({50, kTokens - 1}, logits);
    expect_same(std::span(expected).subspan(50 * width, width), std::span(some).first(width), "row 50");
    expect_same(std::span(expected).last(width), std::span(some).last(width), "the last row");
    for (std::uint32_t token = 0; token < head.rows; token += 7) {
      unpack_row(head, token, weight);
      double sum = 0.0;
      for (std::size_t i = 0; i < width; ++i) sum += static_cast<double>(weight[i]) * static_cast<double>(some[i]);
      EXPECT_NEAR(static_cast<double>(logits[token]), sum / divisor, 1e-4);
    }
  }
}

// Rows without logits leave the last layer early: the cache entries they write must be the same.
TEST_F(Batches, AnyChoiceOfRowsGetsTheSameLogits) {
  for_each_variant([](const std::string& path, const tiny::RigOptions& options) {
    const std::vector<std::vector<TokenId>> prompts{prompt_of(21), prompt_of(22, 40), prompt_of(23, 70)};
    Random random(24);
    tiny::Rig rig(path, options);
    std::vector<std::vector<float>> expected;
    for (std::uint32_t r = 0; r < 3; ++r) {
      expected.push_back(alone(path, options, prompts[r]));
      rig.give_blocks(Slot{r}, tiny::blocks_for(kTokens, 16, 1 + r, 3));
    }
    for (std::uint32_t done = 0; done < 40; done += 20) {
      std::vector<TokenId> tokens;
      std::vector<BatchSequence> sequences;
      std::vector<std::uint32_t> rows;
      std::vector<float> wanted;
      for (std::uint32_t r = 0; r < 3; ++r) {
        sequences.push_back({Slot{r}, done, 20});
        const double share = random.unit();
        for (std::uint32_t i = done; i < done + 20; ++i) {
          tokens.push_back(prompts[r][i]);
          if (!random.chance(share)) continue;
          rows.push_back(static_cast<std::uint32_t>(tokens.size()) - 1);
          const auto row = std::span(expected[r]).subspan(i * rig.vocab(), rig.vocab());
          wanted.insert(wanted.end(), row.begin(), row.end());
        }
      }
      std::vector<float> logits(wanted.size());
      rig.model().forward({tokens, sequences, rows}, rig.cache(), rig.tables(), {logits});
      expect_same(wanted, logits, std::to_string(rows.size()) + " rows");
    }
  });
}

TEST_F(Batches, AllInstructionSetsAgreeBitForBit) {
  if (&select_kernels(KernelIsa::best) == &select_kernels(KernelIsa::reference))
    GTEST_SKIP() << "this processor or this build has only the reference kernels: nothing to compare";
  for_each_variant([](const std::string& path, tiny::RigOptions options) {
    const auto prompt = prompt_of(6);
    options.isa = KernelIsa::reference;
    const auto expected = alone(path, options, prompt);
    for (const KernelIsa isa : kFastIsas) {
      if (!find_kernels(isa)) continue;
      options.isa = isa;
      expect_same(expected, alone(path, options, prompt), "isa " + std::to_string(static_cast<int>(isa)));
    }
  });
}

TEST_F(Batches, CopiedBlocksServeAnotherRequest) {
  const std::string path = folder_.file("model.gguf");
  tiny::write_gguf(path, tiny::small_llama(), "Q4_0");
  const tiny::RigOptions options;
  const auto prompt = prompt_of(7, 40);
  const auto expected = alone(path, options, prompt);
  tiny::Rig rig(path, options);
  rig.give_blocks(Slot{0}, tiny::blocks_for(32, 16, 1));
  rig.run(std::span(prompt).first(32), {{Slot{0}, 0, 32}});
  for (const std::uint32_t block : {1U, 2U})
    for (std::uint32_t tensor = 0; tensor < rig.cache().layout().page_bytes.size(); ++tensor)
      std::ranges::copy(rig.cache().page(tensor, BlockId{block}), rig.cache().page(tensor, BlockId{block + 10}).begin());
  rig.give_blocks(Slot{1}, tiny::blocks_for(40, 16, 11));
  const auto logits = rig.run(std::span(prompt).subspan(32), {{Slot{1}, 32, 8}});
  expect_same(std::span(expected).subspan(32 * rig.vocab()), logits, "copied prefix");
}

// A context of a million tokens needs no extra memory when the engine serves fewer.
TEST_F(Batches, WorkspacesDependOnTheServedLength) {
  ModelConfig config = tiny::small_llama();
  config.context_length = 1U << 20U;
  const std::string path = folder_.file("model.gguf");
  tiny::write_gguf(path, config, "Q8_0");
  ThreadPool pool(4);
  const auto workspace = [&](std::uint32_t max_model_len) {
    const auto model = load_model(path, {.max_num_batched_tokens = 64, .max_num_seqs = 4, .max_model_len = max_model_len, .pool = &pool});
    EXPECT_TRUE(model);
    return (*model)->workspace_bytes();
  };
  const std::uint64_t all = workspace(0), served = workspace(4096);
  EXPECT_EQ(workspace(1U << 30U), all) << "never more than the context";
  EXPECT_GE(all - served, 8 * ((1U << 20U) - 4096U) / kSegmentTokens * attention_partial_floats(64, 2) * 4);
}

TEST_F(Batches, RefusesBatchesBeyondItsLimits) {
  const std::string path = folder_.file("model.gguf");
  tiny::write_gguf(path, tiny::small_llama(), "F32");
  tiny::Rig rig(path, {.num_threads = 1, .max_rows = 8, .num_slots = 8});
  rig.give_blocks(Slot{0}, tiny::blocks_for(128, 16, 1));
  const std::vector<TokenId> nine(9, 1), outside{300}, one{1};
  EXPECT_DEATH(rig.run(nine, {{Slot{0}, 0, 9}}), "max_num_batched_tokens");
  EXPECT_DEATH(rig.run(outside, {{Slot{0}, 0, 1}}), "vocabulary");
  EXPECT_DEATH(rig.run(one, {{Slot{0}, 128, 1}}), "all positions are less than max_model_len");
  EXPECT_DEATH(rig.run(one, {{Slot{1}, 0, 1}}), "within the blocks of the row");
}

}  // namespace
}  // namespace quire
