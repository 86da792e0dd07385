// Compares GGUF models that support images through a second file (mmproj) with the folder that both files come from.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/model/logit_record.h"
#include "runtime/model/model.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_mmproj.h"
#include "runtime/model/vision_encoder.h"

namespace quire {
namespace {

class ModelWithMmproj : public testing::TestWithParam<std::string> {
 protected:
  static boost::json::value config(const std::string& family) {
    const std::string text = R"("vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128, "tie_word_embeddings": true})";
    const std::string vision = R"("vision_config": {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 16, "patch_size": 4, "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6}})";
    if (family.starts_with("qwen")) {
      const std::string own = family == "qwen2_vl" ? R"("embed_dim": 48, "mlp_ratio": 1.5, "hidden_size": 64)"
                                                   : R"("hidden_size": 48, "intermediate_size": 72, "out_hidden_size": 64, "window_size": 8,
                                                        "fullatt_block_indexes": [1])";
      return boost::json::parse(R"({"model_type": ")" + family + R"(", "image_token_id": 299, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
          "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}, "vision_config": {"depth": 2, "num_heads": 4, "patch_size": 4, )" +
                                own + "}, " + text);
    }
    if (family == "gemma3")
      return boost::json::parse(
          R"({"model_type": "gemma3", "image_token_index": 299, "mm_tokens_per_image": 4, "text_config": {"model_type": "gemma3_text",
             "sliding_window": 8, "query_pre_attn_scalar": 16, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, )" +
          text + ", " + vision);
    return boost::json::parse(R"({"model_type": "idefics3", "image_token_id": 299, "scale_factor": 2,
        "text_config": {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, )" +
                              text + ", " + vision);
  }
  static std::string place(const std::string& family) {
    return family == "gemma3" ? "<image_soft_token>" : family == "idefics3" ? "<image>" : "<|image_pad|>";
  }
  std::string written_folder(const std::string& family) const {
    const std::string path = folder_.file("folder");
    family.starts_with("qwen") ? tiny::write_qwen_folder(path, config(family), "F32")
                               : tiny::write_vision_folder(path, config(family), "F32");
    return path;
  }
  tiny::TwoFiles files(const tiny::TwoFilesOptions& options = {}, const std::string& family = "idefics3") const {
    return tiny::write_two_files(folder_.file("gguf"), config(family), options);
  }
  // Returns why the files are refused.
  std::string refusal(const tiny::TwoFilesOptions& options, const std::string& family = "idefics3") const {
    const tiny::TwoFiles two = files(options, family);
    const auto file = ModelFile::open(two.model, two.mmproj);
    return file ? std::string() : file.error().to_string();
  }

  tiny::TempFolder folder_;
};

struct ImageResult {
  std::vector<float> embeds, logits;
};

// Runs a tile in the middle of a prompt.
ImageResult result_of(tiny::Rig& rig) {
  VisionEncoder& encoder = *rig.model().vision();
  const std::uint32_t side = encoder.config().has_grid_positions ? 2 * encoder.config().grid_side() : encoder.config().image_size;
  const std::vector<std::uint8_t> tile = tiny::drawn_bytes("tile", std::size_t{3} * side * side);
  VisionRun run;
  encoder.begin(run, {tile, side, side});
  while (!run.is_done()) encoder.advance(run);
  ImageResult seen{{run.embeds().begin(), run.embeds().end()}, std::vector<float>(2 * rig.vocab())};
  std::vector<TokenId> prompt = {5, 17, 9, 299, 299, 299, 299, 11, 200, 33};
  std::vector<EmbeddedRow> rows;
  std::vector<std::uint32_t> last_seen(prompt.size());
  for (std::uint32_t i = 0; i < prompt.size(); ++i) last_seen[i] = i;
  for (std::uint32_t i = 0; i < 4; ++i) {
    rows.push_back({3 + i, seen.embeds.data() + i * rig.model().info().hidden_size});
    if (encoder.config().attends_bidirectionally) last_seen[3 + i] = 6;
  }
  rig.give_blocks(Slot{0}, tiny::blocks_for(static_cast<std::uint32_t>(prompt.size()), 16, 3, 2));
  const std::vector<BatchSequence> sequences = {{Slot{0}, 0, static_cast<std::uint32_t>(prompt.size())}};
  const std::vector<std::uint32_t> wanted = {4, 9};
  rig.model().forward({prompt, sequences, wanted, rows, {}, last_seen}, rig.cache(), rig.tables(), {seen.logits});
  return seen;
}

void expect_close(const std::vector<float>& of_files, const std::vector<float>& of_folder) {
  ASSERT_EQ(of_files.size(), of_folder.size());
  const double scale = tiny::standard_deviation(of_folder);
  for (std::size_t i = 0; i < of_files.size(); ++i) ASSERT_NEAR(of_files[i], of_folder[i], 1e-5 * scale) << i;
}

TEST_P(ModelWithMmproj, GiveTheResultsOfTheFolder) {
  const std::string folder = written_folder(GetParam());
  const tiny::TwoFiles two = files({.place = place(GetParam())}, GetParam());
  tiny::Rig of_folder(folder, {}), of_files(two.model, {.mmproj = two.mmproj});
  ASSERT_NE(of_files.model().vision(), nullptr);
  const ImageResult wanted = result_of(of_folder), seen = result_of(of_files);
  expect_close(seen.embeds, wanted.embeds);
  expect_close(seen.logits, wanted.logits);
}

TEST_P(ModelWithMmproj, ReportTheImageInfoOfTheFolder) {
  const std::string folder = written_folder(GetParam());
  const tiny::TwoFiles two = files({.place = place(GetParam())}, GetParam());
  const auto wanted = inspect(folder), info = inspect(two.model, two.mmproj);
  ASSERT_TRUE(wanted.has_value() && info.has_value());
  const ImageInfo &a = info->pictures, &b = wanted->pictures;
  EXPECT_EQ(
      std::tie(a.processor, a.tile_side, a.longest_edge, a.splits, a.filter, a.tile_tokens, a.max_tiles, a.token, a.mean, a.deviation),
      std::tie(b.processor, b.tile_side, b.longest_edge, b.splits, b.filter, b.tile_tokens, b.max_tiles, b.token, b.mean, b.deviation));
  EXPECT_EQ(std::tie(a.attends_bidirectionally, a.embed_size, a.place), std::tie(b.attends_bidirectionally, b.embed_size, b.place));
  EXPECT_EQ(std::tie(a.embed_side, a.has_grid_positions, a.min_pixels, a.max_pixels),
            std::tie(b.embed_side, b.has_grid_positions, b.min_pixels, b.max_pixels));
  EXPECT_EQ(info->num_parameters, wanted->num_parameters);
}

INSTANTIATE_TEST_SUITE_P(Families, ModelWithMmproj, testing::Values("idefics3", "gemma3", "qwen2_vl", "qwen2_5_vl"));

// The first converters swapped the names of two products of a layer.
TEST_F(ModelWithMmproj, OlderFilesOfQwen2VlGiveTheSameEmbeddings) {
  const auto seen = [&](bool has_older_names) {
    const tiny::TwoFiles two = files({.place = place("qwen2_vl"), .has_older_names = has_older_names}, "qwen2_vl");
    tiny::Rig rig(two.model, {.mmproj = two.mmproj});
    return result_of(rig).embeds;
  };
  EXPECT_EQ(seen(true), seen(false));
}

TEST_F(ModelWithMmproj, UseLlamaCppsDefaultImageSizesForQwenWithoutTheKeys) {
  const tiny::TwoFiles two = files({.place = place("qwen2_vl"), .without = "image_max_pixels"}, "qwen2_vl");
  const auto info = inspect(two.model, two.mmproj);
  ASSERT_TRUE(info.has_value()) << info.error().to_string();
  EXPECT_EQ(info->pictures.max_pixels, 4096U * 8 * 8);
}

// The vocabulary of published Gemma 3 files ends before the image token.
TEST_F(ModelWithMmproj, UseAnotherPlaceholderWhenTheVocabularyHasNoImageToken) {
  const tiny::TwoFiles two = files({.place = "<pad>"}, "gemma3");
  const auto info = inspect(two.model, two.mmproj);
  ASSERT_TRUE(info.has_value()) << info.error().to_string();
  EXPECT_EQ(info->pictures.token, 299);
  EXPECT_EQ(info->pictures.place, "<pad>");
}

TEST_F(ModelWithMmproj, TheModelAloneReadsText) {
  const tiny::TwoFiles two = files();
  const auto info = inspect(two.model);
  ASSERT_TRUE(info.has_value()) << info.error().to_string();
  EXPECT_FALSE(info->pictures.any());
  tiny::Rig rig(two.model, {});
  EXPECT_EQ(rig.model().vision(), nullptr);
}

// KV blocks after images depend on the encoder, so another encoder means another model.
TEST_F(ModelWithMmproj, TheSecondFileIsPartOfTheDigest) {
  const tiny::TwoFiles two = files();
  const auto digest = [&](const std::string& mmproj) { return ModelFile::open(two.model, mmproj).value().digest().value(); };
  const Sha256Digest seeing = digest(two.mmproj);
  EXPECT_EQ(digest(two.mmproj), seeing);
  EXPECT_NE(digest(""), seeing);
}

TEST_F(ModelWithMmproj, RefuseInvalidFilesAndReportTheReason) {
  const auto names = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  EXPECT_EQ(refusal({}), "");
  EXPECT_TRUE(names(refusal({.projector = "pixtral"}), "mmproj: clip.projector_type: 'pixtral' is not implemented"))
      << refusal({.projector = "pixtral"});
  EXPECT_TRUE(names(refusal({.projector = "gemma3"}), "belongs to a gemma3 decoder, but the model is llama"))
      << refusal({.projector = "gemma3"});
  EXPECT_TRUE(names(refusal({.place = "word"}), "does not contain <image>")) << refusal({.place = "word"});
  for (const char* key : {"embedding_length", "block_count", "image_size", "image_mean", "attention.head_count"})
    EXPECT_TRUE(names(refusal({.without = key}), key)) << refusal({.without = key});
  const tiny::TwoFiles two = files();
  const auto as_mmproj = ModelFile::open(two.model, two.model);
  ASSERT_FALSE(as_mmproj.has_value());
  EXPECT_EQ(as_mmproj.error().field, "mmproj: general.architecture");
  const std::string folder = folder_.file("folder");
  tiny::write_vision_folder(folder, config("idefics3"), "F32");
  const auto of_folder = ModelFile::open(folder, two.mmproj);
  ASSERT_FALSE(of_folder.has_value());
  EXPECT_EQ(of_folder.error().field, "mmproj");
}

TEST_F(ModelWithMmproj, ReportAnUnusedTensor) {
  for (const char* name : {"v.blk.0.attn_q_norm.weight", "mm.model.mlp.0.weight"}) {
    const tiny::TwoFiles two = files({.more = name});
    const auto file = ModelFile::open(two.model, two.mmproj);
    ASSERT_TRUE(file.has_value()) << file.error().to_string();
    ThreadPool pool(1);
    const auto model =
        load_model(*file, file->info().value(), {.max_num_batched_tokens = 16, .max_num_seqs = 1, .max_model_len = 64, .pool = &pool});
    ASSERT_FALSE(model.has_value()) << name;
    EXPECT_NE(model.error().field.find(name), std::string::npos) << model.error().to_string();
  }
}

}  // namespace
}  // namespace quire
