// Tests images in request bodies of all three APIs: the engine's input and the refusals.
#include "media/image.h"

#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/base64.h"
#include "base/digest.h"
#include "media/idefics3.h"
#include "media/llava.h"
#include "server/http/picture_host.h"
#include "server/request/image_prompt.h"
#include "server/running_server.h"

namespace quire {
namespace {

std::string golden_picture(const std::string& name) {
  std::ifstream file("tests/golden/pictures/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string base64_of_picture(const std::string& name) {
  const std::string file = golden_picture(name);
  return base64_of(std::as_bytes(std::span(file)));
}

std::string data_url(const std::string& name) {
  return "data:image/png;base64," + base64_of_picture(name);
}

std::string picture_part_of(const std::string& url) {
  return R"({"type": "image_url", "image_url": {"url": ")" + url + R"("}})";
}

std::string chat_with(const std::string& parts, const std::string& more = "") {
  return R"({"max_tokens": 3, "messages": [{"role": "user", "content": [)" + parts + "]}]" + more + "}";
}

const std::string kText = R"({"type": "text", "text": "What is it?"})";

class ServedImages : public RunningServer {
 protected:
  void SetUp() override {
    if (!has_image_decoders()) GTEST_SKIP() << "this build does not read images";
    engine.answer_with("a cat");
    engine.see(info_);
  }
  // Returns the prompt that the engine received, with each image token as "#".
  static std::string shown(const EngineRequest& request) {
    std::string text;
    for (const TokenId token : request.prompt) text += token == 257 ? '#' : static_cast<char>(token);
    return text;
  }
  std::string problem(const std::string& body, const std::string& path = "/v1/chat/completions") {
    const ClientResponse response = post(path, body);
    return std::to_string(response.status) + " " + (response.status == 200 ? "" : response.body);
  }
  static void expect_in(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; }

  ImageInfo info_{.processor = "idefics3",
                  .tile_side = 16,
                  .longest_edge = 32,
                  .splits = true,
                  .filter = 1,
                  .tile_tokens = 2,
                  .max_tiles = 5,
                  .mean = {0.5F, 0.5F, 0.5F},
                  .deviation = {0.5F, 0.5F, 0.5F}};
};

TEST_F(ServedImages, ReachTheEngineAsTilesAfterTheirTokens) {
  start();
  ASSERT_EQ(post("/v1/chat/completions", chat_with(kText + "," + picture_part_of(data_url("rgb.png")))).status, 200U);
  const EngineRequest request = engine.at(0).request;
  const std::string around = "<fake_token_around_image>";
  EXPECT_EQ(shown(request), "<user>" + around + "<row_1_col_1>##" + around + "<row_1_col_2>##\n" + around + "<row_2_col_1>##" + around +
                                "<row_2_col_2>##\n\n" + around + "<global-img>##" + around + "\nWhat is it?<assistant>");
  ASSERT_EQ(request.pictures.size(), 1U);
  const PromptImage& picture = request.pictures[0];
  const std::string file = golden_picture("rgb.png");
  const auto bytes = std::as_bytes(std::span(file));
  EXPECT_EQ(picture.identifier, to_hex(Sha256::of(bytes)));
  EXPECT_EQ(picture.position.num_embeds(), 10U);
  EXPECT_EQ(picture.position.offset(), 6U + 25U + 13U);
  EXPECT_EQ(picture.tiles->rgb, idefics3_tiles(decode_image(bytes).value(), info_).rgb);
}

TEST_F(ServedImages, RefusesMorePixelsPerRequestThanAllowed) {
  const std::string file = golden_picture("rgb.png");
  const ImageHeader head = read_image_header(std::as_bytes(std::span(file))).value();
  start({.max_pixels = std::uint64_t{1} * head.width * head.height});
  const std::string part = picture_part_of(data_url("rgb.png"));
  EXPECT_EQ(post("/v1/chat/completions", chat_with(part)).status, 200U);
  const std::string refused = problem(chat_with(part + "," + part));
  expect_in(refused, "413");
  expect_in(refused, "messages[0].content[1]");
  expect_in(refused, "--max-pixels");
  EXPECT_EQ(engine.num_submitted(), 1U);
}

TEST(ImageMemory, LimitsTheShareOfOneTenant) {
  ImageMemory memory;
  constexpr std::uint64_t kPiece = std::uint64_t{16} << 20U;
  std::vector<std::shared_ptr<const void>> held;
  const auto fill = [&](const char* tenant) {
    std::uint64_t bytes = 0;
    while (auto piece = memory.take(kPiece, tenant)) {
      held.push_back(std::move(piece));
      bytes += kPiece;
    }
    return bytes;
  };
  const std::uint64_t of_a = fill("a");
  EXPECT_LE(of_a, ImageMemory::kMaxBytes * 3 / 4);
  EXPECT_GE(of_a, ImageMemory::kMaxBytes / 2);
  EXPECT_GE(fill("b"), 4 * kPiece);
  EXPECT_GE(fill("c"), kPiece) << "another tenant finds room";
  held.clear();
  EXPECT_EQ(fill("c"), of_a) << "all memory is returned";
}

TEST(ImageMemory, ReservesScratchForSmallImagesNextToLargeOnes) {
  ImageMemory memory;
  std::vector<std::shared_ptr<const void>> held;
  while (auto piece = memory.reserve_scratch(std::uint64_t{234} << 20U)) held.push_back(std::move(piece));
  while (auto piece = memory.reserve_scratch(std::uint64_t{9} << 20U)) held.push_back(std::move(piece));
  EXPECT_NE(memory.reserve_scratch(16 * 16 * 7), nullptr);
  EXPECT_EQ(memory.reserve_scratch(std::uint64_t{9} << 20U), nullptr);
}

TEST_F(ServedImages, AllThreeApisGiveTheSamePrompt) {
  start();
  const std::string url = data_url("jpeg_420.jpg"), data = base64_of_picture("jpeg_420.jpg");
  ASSERT_EQ(post("/v1/chat/completions", chat_with(picture_part_of(url) + "," + kText)).status, 200U);
  ASSERT_EQ(
      post("/v1/responses", R"({"max_output_tokens": 3, "input": [{"role": "user", "content": [{"type": "input_image", "image_url": ")" +
                                url + R"("}, {"type": "input_text", "text": "What is it?"}]}]})")
          .status,
      200U);
  ASSERT_EQ(post("/v1/messages", R"({"model": "bytes", "max_tokens": 3, "messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": ")" +
                                     data + R"("}}, {"type": "text", "text": "What is it?"}]}]})")
                .status,
            200U);
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(engine.at(i).request.prompt, engine.at(0).request.prompt) << i;
    ASSERT_EQ(engine.at(i).request.pictures.size(), 1U) << i;
    EXPECT_EQ(engine.at(i).request.pictures[0].identifier, engine.at(0).request.pictures[0].identifier) << i;
  }
}

TEST_F(ServedImages, AreCountedByTokenizeAndAcceptedByPooling) {
  engine.pool_with([](const EngineRequest&) { return std::vector<float>(4, 0.5F); });
  start({.pooling = PoolingKind::last});
  const std::string chat = R"({"messages": [{"role": "user", "content": [)" + kText + "," + picture_part_of(data_url("rgb.png")) + "]}]";
  ASSERT_EQ(post("/v1/chat/completions", chat + R"(, "max_tokens": 3})").status, 200U);
  const EngineRequest answered = engine.at(0).request;
  const ClientResponse tokens = post("/tokenize", chat + "}");
  ASSERT_EQ(tokens.status, 200U) << tokens.body;
  EXPECT_EQ(tokens.json().at("count"), answered.prompt.size());
  const ClientResponse vectors = post("/pooling", chat + R"(, "add_generation_prompt": true})");
  ASSERT_EQ(vectors.status, 200U) << vectors.body;
  const EngineRequest pooled = engine.at(1).request;
  EXPECT_TRUE(pooled.pooling);
  EXPECT_EQ(pooled.prompt, answered.prompt);
  ASSERT_EQ(pooled.pictures.size(), 1U);
  EXPECT_EQ(pooled.pictures[0].identifier, answered.pictures[0].identifier);
}

class ServedLlava : public ServedImages {
 protected:
  ServedLlava() {
    info_.processor = "llava";
    info_.shortest_edge = 20;
    info_.filter = 3;
    info_.tile_tokens = 4;
    info_.max_tiles = 1;
    info_.embed_size = 3;
  }
};

TEST_F(ServedLlava, ReachesTheEngineAsOneTileAfterItsTokens) {
  start();
  const std::string two = picture_part_of(data_url("rgb.png")) + "," + picture_part_of(data_url("tall.png"));
  ASSERT_EQ(post("/v1/chat/completions", chat_with(two + "," + kText)).status, 200U);
  const EngineRequest request = engine.at(0).request;
  EXPECT_EQ(shown(request), "<user>####\n####\nWhat is it?<assistant>");
  ASSERT_EQ(request.pictures.size(), 2U);
  EXPECT_EQ(request.pictures[0].position, PlaceholderRange(6, std::vector<std::uint8_t>(4, 1)));
  EXPECT_EQ(request.pictures[1].position.offset(), 11U);
  const std::string file = golden_picture("tall.png");
  EXPECT_EQ(request.pictures[1].tiles->rgb, llava_tiles(decode_image(std::as_bytes(std::span(file))).value(), info_).rgb);
}

TEST_F(ServedImages, PassesPartsToATemplateThatIteratesOverThem) {
  start({.chat_template = "{% for m in messages %}<{{ m.role }}>{% for part in m['content'] %}{% if part['type'] == 'image' %}<image>"
                          "{% else %}[{{ part['text'] }}]{% endif %}{% endfor %}{% endfor %}"});
  const std::string body = R"({"max_tokens": 3, "messages": [{"role": "system", "content": "Look."}, {"role": "user", "content": [)" +
                           kText + "," + picture_part_of(data_url("rgb.png")) + "," + kText + "]}]}";
  ASSERT_EQ(post("/v1/chat/completions", body).status, 200U);
  const std::string text = shown(engine.at(0).request);
  EXPECT_TRUE(text.starts_with("<system>[Look.]<user>[What is it?]<fake_token")) << text;
  EXPECT_TRUE(text.ends_with("image>[What is it?]")) << text;
}

TEST_F(ServedImages, ErrorsNameThePartOfAnInvalidImage) {
  start({.max_pictures = 2});
  const std::string good = picture_part_of(data_url("rgb.png"));
  const auto refused = [&](const std::string& url) { return problem(chat_with(kText + "," + picture_part_of(url))); };
  for (const char* part : {"400", "messages[0].content[1]", "does not fetch images"})
    expect_in(refused("https://example.org/cat.png"), part);
  for (const char* part : {"400", "messages[0].content[1]", "not valid base64"}) expect_in(refused("data:image/png;base64,!!!!"), part);
  expect_in(refused("data:image/png;base64,"), "is empty");
  expect_in(refused(data_url("cmyk.jpg")), "CMYK");
  expect_in(refused(data_url("animated.webp")), "animated WebP");
  expect_in(refused("data:image/png;base64," + base64_of_picture("rgb.png").substr(0, 200)), "corrupted PNG");
  expect_in(problem(chat_with(R"({"type": "image_url"})")), "contains no image");
  for (const char* part : {"400", "messages[0].content[2]", "is image 3"})
    expect_in(problem(chat_with(good + "," + good + "," + good)), part);
  expect_in(problem(chat_with(good + R"(, {"type": "text", "text": "<image>"})")), "2 placeholders for 1 images");
  expect_in(problem(chat_with(good, R"(, "truncate_prompt_tokens": 20)")), "truncate_prompt_tokens");
  // Two images are more than 400 bytes and special tokens, so the context of 512 is full before any decoding.
  expect_in(problem(chat_with(good + "," + good + R"(, {"type": "text", "text": ")" + std::string(150, 'x') + "\"}")),
            "maximum context length is 512 tokens");
  expect_in(problem(R"({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]})", "/v1/responses"),
            "input[0].content[0]");
  EXPECT_EQ(post("/v1/chat/completions", chat_with(good)).status, 200U);
}

std::string embeds_part(const std::vector<float>& values, const std::string& more = "") {
  return R"({"type": "image_embeds", "image_embeds": ")" + base64_of(std::as_bytes(std::span(values))) + "\"" + more + "}";
}

TEST_F(ServedLlava, EmbeddingsReachTheEngineInPlaceOfTiles) {
  start({.enable_mm_embeds = true});
  const std::vector<float> values{1.0F, -2.5F, 3.0F, 0.0F, 5.0F, 6.0F, 7.0F, 8.0F, 9.0F, 1e-30F, 11.0F, 12.0F};
  std::vector<float> others = values;
  others[3] = 4.0F;
  for (const std::vector<float>& sent : {values, others, values}) ASSERT_EQ(problem(chat_with(embeds_part(sent) + "," + kText)), "200 ");
  const EngineRequest request = engine.at(0).request;
  EXPECT_EQ(shown(request), "<user>####\nWhat is it?<assistant>");
  ASSERT_EQ(request.pictures.size(), 1U);
  EXPECT_EQ(request.pictures[0].tiles, nullptr);
  EXPECT_EQ(request.pictures[0].embeds->values, values);
  const auto name = [&](std::size_t i) { return engine.at(i).request.pictures[0].identifier; };
  EXPECT_NE(name(0), name(1));
  EXPECT_EQ(name(0), name(2));
}

TEST_F(ServedLlava, ErrorsNameThePartOfInvalidEmbeddings) {
  start({.enable_mm_embeds = true});
  const auto refused = [&](const std::string& part) { return problem(chat_with(kText + "," + part)); };
  for (const char* part : {"400", "messages[0].content[1]", "has 3 embeddings", "send 4"})
    expect_in(refused(embeds_part(std::vector<float>(9))), part);
  expect_in(refused(embeds_part(std::vector<float>(11))), "has 11 numbers");
  expect_in(refused(embeds_part({})), "does not contain embeddings in base64");
  expect_in(refused(R"({"type": "image_embeds", "image_embeds": "UEsDBA=="})"), "has 1 numbers");
  expect_in(refused(R"({"type": "image_embeds", "image_embeds": "UEs="})"), "does not contain embeddings in base64");
  expect_in(refused(R"({"type": "image_embeds", "image_embeds": {"a": 1}})"), "does not contain embeddings in base64");
  expect_in(refused(R"({"type": "image_embeds"})"), "does not contain embeddings in base64");
  std::vector<float> wrong(12);
  wrong[5] = std::numeric_limits<float>::infinity();
  expect_in(refused(embeds_part(wrong)), "contains NaN or Inf");
  wrong[5] = std::numeric_limits<float>::quiet_NaN();
  expect_in(refused(embeds_part(wrong)), "contains NaN or Inf");
  for (const char* count : {"-1", "1e30", "\"2\"", "2.5"})
    expect_in(refused(embeds_part(std::vector<float>(12), R"(, "rows": )" + std::string(count))), "has an invalid value of rows");
}

TEST_F(ServedLlava, EmbeddingsRequireAFlag) {
  start();
  for (const char* part : {"400", "messages[0].content[0]", "--enable-mm-embeds"})
    expect_in(problem(chat_with(embeds_part(std::vector<float>(12)))), part);
}

TEST_F(ServedImages, ImageHashesDifferBetweenTenants) {
  start({.tenant_keys = {{"ann", "key-a"}, {"ben", "key-b"}}, .tenant_secret = "secret"});
  const std::string body = chat_with(picture_part_of(data_url("rgb.png")));
  for (const char* key : {"key-a", "key-b", "key-a"})
    ASSERT_EQ(post("/v1/chat/completions", body, std::string("Authorization: Bearer ") + key + "\r\n").status, 200U);
  const auto name = [&](std::size_t i) { return engine.at(i).request.pictures[0].identifier; };
  EXPECT_NE(name(0), name(1));
  EXPECT_EQ(name(0), name(2));
}

TEST_F(ServedImages, AreFetchedFromAllowedHosts) {
  const std::string file = golden_picture("rgb.png");
  PictureHost host(file), words("no picture");
  start({.max_pictures = 2, .allowed_media_domains = {"127.0.0.1"}, .media_timeout_ms = 2000});
  const std::string fetched = picture_part_of(host.at("/cat")), sent = picture_part_of(data_url("rgb.png"));
  ASSERT_EQ(post("/v1/chat/completions", chat_with(fetched + "," + kText)).status, 200U);
  ASSERT_EQ(post("/v1/chat/completions", chat_with(sent + "," + kText)).status, 200U);
  ASSERT_EQ(post("/v1/messages", R"({"model": "bytes", "max_tokens": 3, "messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": ")" +
                                     host.at("/hop/2") + R"("}}, {"type": "text", "text": "What is it?"}]}]})")
                .status,
            200U);
  // The identifier depends on the image's bytes, not on its source.
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(engine.at(i).request.prompt, engine.at(0).request.prompt) << i;
    EXPECT_EQ(engine.at(i).request.pictures[0].identifier, to_hex(Sha256::of(std::as_bytes(std::span(file))))) << i;
  }
  const auto refused = [&](const std::string& url) { return problem(chat_with(kText + "," + picture_part_of(url))); };
  for (const char* part : {"400", "messages[0].content[1]", "is at example.org", "--allowed-media-domains"})
    expect_in(refused("https://example.org/cat.png"), part);
  for (const char* part : {"400", "messages[0].content[1]", "answers with status 404"}) expect_in(refused(host.at("/gone")), part);
  for (const char* part : {"400", "messages[0].content[1]", "no answer within the time limit"}) expect_in(refused(host.at("/slow")), part);
  for (const char* part : {"413", "messages[0].content[1]", "--max-media-bytes"}) expect_in(refused(host.at("/huge")), part);
  for (const char* part : {"400", "messages[0].content[1]", "PNG"}) expect_in(refused(words.at("/cat")), part);
  const unsigned asked = host.num_asked();
  expect_in(problem(chat_with(sent + "," + sent + "," + fetched)), "is image 3");
  EXPECT_EQ(host.num_asked(), asked) << "an image above the limit is not fetched";
}

TEST_F(ServedImages, SlowDownloadDoesNotBlockOtherRequests) {
  PictureHost host(golden_picture("rgb.png"));
  start({.allowed_media_domains = {"127.0.0.1"}, .media_timeout_ms = 600'000});
  HttpClient waits(port);
  waits.send_post("/v1/chat/completions", chat_with(picture_part_of(host.at("/slow"))));
  EXPECT_EQ(post("/v1/chat/completions", chat_with(picture_part_of(data_url("rgb.png")))).status, 200U);
  EXPECT_EQ(post("/v1/chat/completions", chat_with(picture_part_of(host.at("/cat")))).status, 200U);
}

class ServedWholeImages : public RunningServer {
 protected:
  void SetUp() override {
    if (!has_image_decoders()) GTEST_SKIP() << "this build does not read images";
    engine.answer_with("a cat");
    engine.see({.processor = "qwen2_vl",
                .filter = 3,
                .tile_tokens = 30,
                .max_tiles = 1,
                .mean = {0.5F, 0.5F, 0.5F},
                .deviation = {0.5F, 0.5F, 0.5F},
                .embed_side = 8,
                .min_pixels = 64,
                .max_pixels = 1920},
               "<|image_pad|>");
  }
  const std::string template_ =
      "{% for m in messages %}<{{ m.role }}>{% for part in m['content'] %}{% if part['type'] == 'image' or 'image_url' in part %}"
      "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}";
};

TEST_F(ServedWholeImages, HaveOneTokenPerMergedPatch) {
  start({.chat_template = template_});
  const std::string both = picture_part_of(data_url("rgb.png")) + "," + kText + "," + picture_part_of(data_url("tall.png"));
  ASSERT_EQ(post("/v1/chat/completions", chat_with(both)).status, 200U);
  const EngineRequest request = engine.at(0).request;
  // 37 x 23 pixels become 5 x 3 squares; 11 x 90 pixels become 1 x 11 squares.
  std::string text;
  for (const TokenId token : request.prompt) text += token == 257 ? '#' : static_cast<char>(token);
  EXPECT_EQ(text, "<user><|vision_start|>" + std::string(15, '#') + "<|vision_end|>What is it?<|vision_start|>" + std::string(11, '#') +
                      "<|vision_end|>");
  ASSERT_EQ(request.pictures.size(), 2U);
  EXPECT_EQ(request.pictures[0].position, PlaceholderRange(22, std::vector<std::uint8_t>(15, 1)));
  EXPECT_EQ(std::pair(request.pictures[0].tiles->side, request.pictures[0].tiles->height()), std::pair(40U, 24U));
  EXPECT_EQ(std::pair(request.pictures[1].tiles->side, request.pictures[1].tiles->height()), std::pair(8U, 88U));
}

TEST_F(ServedWholeImages, ErrorsNameThePartOfAnImageWithABadAspectRatio) {
  start({.chat_template = template_});
  const std::string good = picture_part_of(data_url("rgb.png"));
  const auto refusal = [&](const std::string& parts) {
    const ClientResponse response = post("/v1/chat/completions", chat_with(parts));
    return std::to_string(response.status) + " " + response.error_param() + ": " + response.error_message();
  };
  EXPECT_NE(refusal(good + R"(, {"type": "text", "text": "<|image_pad|>"})").find("2 placeholders for 1 images"), std::string::npos);
  // The image is 1 pixel high and 241 wide.
  const std::string wide = "iVBORw0KGgoAAAANSUhEUgAAAPEAAAABCAAAAAAqMhfMAAAADElEQVR4nGNgGGkAAADyAAGtc/jBAAAAAElFTkSuQmCC";
  const std::string message = refusal(kText + "," + picture_part_of("data:image/png;base64," + wide));
  EXPECT_TRUE(message.starts_with("400 messages[0].content[1]: ")) << message;
  EXPECT_NE(message.find("241 x 1"), std::string::npos) << message;
}

class TextAloneServer : public RunningServer {};

TEST_F(TextAloneServer, RefusesImages) {
  start();
  const ClientResponse response = post("/v1/chat/completions", chat_with(picture_part_of("data:image/png;base64,AAAA")));
  EXPECT_EQ(response.status, 400U);
  EXPECT_EQ(response.error_param(), "messages[0].content[0]");
  EXPECT_NE(response.error_message().find("supports text only"), std::string::npos);
}

}  // namespace
}  // namespace quire
