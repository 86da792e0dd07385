// Compares Whisper with transformers, and tests the encoder's promises. Its output depends only on its input, and a decoder's rows depend
// only on that output and their own history.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/kernel/kernel.h"
#include "runtime/model/logit_record.h"
#include "runtime/model/tiny_whisper.h"

namespace quire::tiny {
namespace {

std::string write_whisper(const LogitCase& c, const TempFolder& folder) {
  const auto config = config_from_hf(JsonRef(c.config, c.name));
  EXPECT_TRUE(config) << (config ? "" : config.error().to_string());
  const std::string path = folder.file(c.name + c.type);
  write_hf_folder(path, c.config, whisper_tensors(*config, c.type));
  return path;
}

constexpr std::uint32_t kWhisperBlocks = 64;  // per slot: 1024 positions

// Gives the slot blocks in both groups and runs the encoder into them.
void run_encoder(Rig& rig, Slot slot, const std::string& name = "features") {
  rig.give_blocks(slot, blocks_for(4 * 16, 16, 1 + slot.value * 4));
  const auto& layout = rig.cache().layout();
  for (std::uint32_t group = 0; group < layout.groups.size(); ++group) {
    if (!layout.groups[group].keeps_encoder_output()) continue;
    std::vector<BlockId> blocks;
    const std::uint32_t count = (rig.model().info().encoder.num_positions + 15) / 16;
    for (std::uint32_t i = 4; i < count; ++i) blocks.push_back(BlockId{700 + slot.value * kWhisperBlocks + i});
    if (!blocks.empty())
      rig.tables().apply({.slot = slot, .group = group, .id = {}, .update = TableUpdate::append, .index = 0, .blocks = blocks});
  }
  rig.tables().commit(256);
  rig.model().encode(whisper_features(rig.model().info().encoder, name), slot, rig.cache(), rig.tables());
}

RigOptions whisper_options() {
  return {.max_tokens = 64, .num_blocks = 600, .num_encoder_positions = 1024};
}

double difference_of(const LogitRecord& record, const LogitCase& c, const RigOptions& options) {
  const TempFolder folder;
  Rig rig(write_whisper(c, folder), options);
  run_encoder(rig, Slot{0});
  const auto logits = rig.run(record.prompt, {{Slot{0}, 0, static_cast<std::uint32_t>(record.prompt.size())}});
  return largest_difference(record, c, logits, rig.vocab());
}

// Compares |difference| over the standard deviation of the logits: in f32 throughout, and as served (int16 activations, a bf16 KV cache).
TEST(WhisperTest, LogitsMatchTransformers) {
  const LogitRecord record = read_logit_record("whisper_");
  ASSERT_EQ(record.cases.size(), 6U);
  for (const LogitCase& c : record.cases) {
    SCOPED_TRACE(c.name + " " + c.type);
    RigOptions options = whisper_options();
    const double exact = difference_of(record, c, options);
    EXPECT_LT(exact, 8e-6);
    options.activations = ActivationMode::int16;
    options.kv = KvDtype::bf16;
    const double served = difference_of(record, c, options);
    EXPECT_LT(served, 0.012);
    fmt::print("{:<13} {:<5} {:>8.2g} {:>8.2g}\n", c.name, c.type, exact, served);
  }
}

// Every instruction set and any number of threads must give the same bits.
TEST(WhisperTest, BitsAreTheSameOnEveryInstructionSetAndPool) {
  const LogitRecord record = read_logit_record("whisper_");
  const LogitCase& c = record.cases.back();
  const TempFolder folder;
  const std::string path = write_whisper(c, folder);
  const auto run = [&](KernelIsa isa, std::uint32_t threads) {
    RigOptions options = whisper_options();
    options.isa = isa;
    options.num_threads = threads;
    Rig rig(path, options);
    run_encoder(rig, Slot{0});
    return rig.run(record.prompt, {{Slot{0}, 0, static_cast<std::uint32_t>(record.prompt.size())}});
  };
  const auto reference = run(KernelIsa::reference, 1);
  EXPECT_EQ(run(KernelIsa::best, 1), reference);
  EXPECT_EQ(run(KernelIsa::best, 3), reference);
  for (const KernelIsa isa : {KernelIsa::avx2, KernelIsa::neon})
    if (find_kernels(isa)) EXPECT_EQ(run(isa, 2), reference);
}

// The request runs token by token next to requests with other audio, and has the bits of a run alone.
TEST(WhisperTest, OtherRequestsAndChunksChangeNothing) {
  const LogitRecord record = read_logit_record("whisper_");
  const LogitCase& c = record.cases.back();
  const TempFolder folder;
  const std::string path = write_whisper(c, folder);
  Rig alone(path, whisper_options()), together(path, whisper_options());
  const auto count = static_cast<std::uint32_t>(record.prompt.size());
  run_encoder(alone, Slot{0});
  const auto expected = alone.run(record.prompt, {{Slot{0}, 0, count}});
  run_encoder(together, Slot{0}, "others");
  run_encoder(together, Slot{1});
  run_encoder(together, Slot{2}, "more");
  const std::size_t vocab = together.vocab();
  for (std::uint32_t at = 0; at < count; ++at) {
    // Slot 0 continues as well, and slot 2 starts.
    std::vector<TokenId> tokens = {record.prompt[at], record.prompt[at]};
    std::vector<BatchSequence> sequences = {{Slot{0}, at, 1}, {Slot{1}, at, 1}};
    if (at == 3) {
      tokens.insert(tokens.end(), record.prompt.begin(), record.prompt.begin() + 7);
      sequences.push_back({Slot{2}, 0, 7});
    }
    const auto logits = together.run(tokens, sequences);
    const std::vector<float> row(logits.begin() + static_cast<std::ptrdiff_t>(vocab),
                                 logits.begin() + static_cast<std::ptrdiff_t>(2 * vocab));
    const std::vector<float> wanted(expected.begin() + static_cast<std::ptrdiff_t>(at * vocab),
                                    expected.begin() + static_cast<std::ptrdiff_t>((at + 1) * vocab));
    ASSERT_EQ(row, wanted) << at;
  }
}

TEST(WhisperTest, OtherAudioGivesOtherLogits) {
  const LogitRecord record = read_logit_record("whisper_");
  const TempFolder folder;
  Rig rig(write_whisper(record.cases.front(), folder), whisper_options());
  run_encoder(rig, Slot{0});
  run_encoder(rig, Slot{1}, "others");
  const auto count = static_cast<std::uint32_t>(record.prompt.size());
  EXPECT_NE(rig.run(record.prompt, {{Slot{0}, 0, count}}), rig.run(record.prompt, {{Slot{1}, 0, count}}));
}

TEST(WhisperTest, RefusesUnsupportedConfigsAndReportsTheKey) {
  const LogitRecord record = read_logit_record("whisper_");
  const auto refused = [&](const char* key, const boost::json::value& value) {
    boost::json::value config = record.cases.front().config;
    config.as_object()[key] = value;
    const auto read = config_from_hf(JsonRef(config, "config.json"));
    EXPECT_FALSE(read.has_value()) << key;
    return read ? std::string() : read.error().to_string();
  };
  EXPECT_NE(refused("activation_function", "relu").find("activation_function"), std::string::npos);
  EXPECT_NE(refused("scale_embedding", true).find("scale_embedding"), std::string::npos);
  EXPECT_NE(refused("max_source_positions", 0).find("max_source_positions"), std::string::npos);
  EXPECT_NE(refused("num_mel_bins", 1 << 30).find("num_mel_bins"), std::string::npos);
  EXPECT_NE(refused("encoder_layers", 0).find("encoder_layers"), std::string::npos);
  EXPECT_NE(refused("encoder_attention_heads", 3).find("head"), std::string::npos);
  EXPECT_NE(refused("decoder_attention_heads", 0).find("heads"), std::string::npos);
}

}  // namespace
}  // namespace quire::tiny
