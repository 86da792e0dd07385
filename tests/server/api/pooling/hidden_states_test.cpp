// Tests hidden states in files, over real sockets.
#include "server/request/hidden_states.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "server/running_server.h"

namespace quire {
namespace {

class HiddenStatesHttp : public RunningServer {
 protected:
  void SetUp() override {
    char name[] = "/tmp/quire_states_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder = name;
    engine.pool_with([](const EngineRequest& request) {
      std::vector<float> rows;
      for (const TokenId token : request.prompt) rows.insert(rows.end(), {static_cast<float>(token), 0.5F, -1.0F, 2.0F});
      return rows;
    });
  }
  void TearDown() override {
    stop_and_flush();
    std::filesystem::remove_all(folder);
  }
  [[nodiscard]] std::size_t num_files() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
    return count;
  }
  std::string folder;
};

constexpr std::uint32_t kStatesWidth = 4;

// Reads the file as a reader of safetensors does and compares its contents.
void expect_states(const std::string& path, const std::string& text) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  ASSERT_GT(bytes.size(), 8U) << path;
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  ASSERT_LE(8 + length, bytes.size());
  EXPECT_EQ(length % 8, 0U);
  const auto header = boost::json::parse(std::string_view(bytes).substr(8, length));
  const auto& states = header.at("hidden_states");
  const auto& ids = header.at("token_ids");
  EXPECT_EQ(states.at("dtype"), "F32");
  EXPECT_EQ(ids.at("dtype"), "I64");
  EXPECT_EQ(states.at("shape"), (boost::json::array{text.size(), 1, kStatesWidth}));
  EXPECT_EQ(ids.at("shape"), (boost::json::array{text.size()}));
  const std::string_view data = std::string_view(bytes).substr(8 + length);
  const auto begin = ids.at("data_offsets").at(0).to_number<std::size_t>(), end = ids.at("data_offsets").at(1).to_number<std::size_t>();
  EXPECT_EQ(states.at("data_offsets"), (boost::json::array{0, begin}));
  ASSERT_EQ(end, data.size());
  ASSERT_EQ(begin, text.size() * kStatesWidth * sizeof(float));
  for (std::size_t i = 0; i < text.size(); ++i) {
    float first = 0.0F;
    std::int64_t token = 0;
    std::memcpy(&first, data.data() + i * kStatesWidth * sizeof(float), sizeof first);
    std::memcpy(&token, data.data() + begin + i * sizeof token, sizeof token);
    EXPECT_EQ(first, static_cast<float>(text[i]));
    EXPECT_EQ(token, std::int64_t{text[i]});
  }
}

TEST_F(HiddenStatesHttp, CompletionWritesThemBeforeItStarts) {
  start({.hidden_states_folder = folder});
  HttpClient client(port);
  client.send(
      HttpClient::post_text("/v1/completions", R"({"prompt": "abc", "max_tokens": 2, "kv_transfer_params": {"hidden_states": true}})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  EXPECT_EQ(engine.at(0).request.sampling.pooling.kind, PoolingKind::all);
  EXPECT_FALSE(engine.at(1).request.pooling);
  EXPECT_EQ(engine.at(1).request.prompt, engine.at(0).request.prompt);
  EXPECT_EQ(num_files(), 1U);
  engine.end(RequestId{1}, FinishReason::stop);
  const auto answer = client.receive().json();
  const std::string path(answer.at("kv_transfer_params").at("hidden_states_path").as_string());
  EXPECT_EQ(path, folder + "/" + std::string(answer.at("id").as_string()) + ".safetensors");
  expect_states(path, "abc");
}

TEST_F(HiddenStatesHttp, AreComputedWithTheFieldsOfTheRequest) {
  start({.tenant_keys = {{"a", "key-1"}}, .hidden_states_folder = folder});
  HttpClient client(port);
  client.send_post("/v1/completions",
                   R"({"prompt": "abc", "priority": 3, "cache_salt": "mine", "kv_transfer_params": {"hidden_states": true}})",
                   "Authorization: Bearer key-1\r\n");
  ASSERT_TRUE(engine.wait_submitted(2));
  const EngineRequest states = engine.at(0).request;
  EXPECT_TRUE(states.pooling);
  EXPECT_EQ(states.prompt, bytes_to_tokens("abc"));
  EXPECT_EQ(states.priority, 3);
  EXPECT_EQ(states.cache_salt, "mine");
  EXPECT_EQ(states.tags.tenant, "a");
  EXPECT_EQ(states.sampling.max_tokens, 1U);
  engine.end(RequestId{1}, FinishReason::stop);
  const auto answer = client.receive().json();
  EXPECT_EQ(answer.at("kv_transfer_params").at("hidden_states_path").as_string(),
            folder + "/tenant-a/" + std::string(answer.at("id").as_string()) + ".safetensors");
}

TEST_F(HiddenStatesHttp, RefusalOfTheirRequestIsTheAnswer) {
  start({.hidden_states_folder = folder});
  engine.refuse_with(Error{ErrorCode::overloaded, "", "the queue is full", "try again later"});
  const auto refused = post("/v1/completions", R"({"prompt": "abc", "kv_transfer_params": {"hidden_states": true}})");
  EXPECT_EQ(refused.status, 429U) << refused.body;
  EXPECT_EQ(num_files(), 0U);
}

TEST_F(HiddenStatesHttp, PoolingWritesThemToFilesInsteadOfTheAnswer) {
  start({.hidden_states_folder = folder});
  const auto response =
      post("/pooling", R"({"input": ["abc", "de"], "task": "token_embed", "kv_transfer_params": {"hidden_states": true}})");
  ASSERT_EQ(response.status, 200U) << response.body;
  const auto answer = response.json();
  const auto& data = answer.at("data").as_array();
  ASSERT_EQ(data.size(), 2U);
  EXPECT_TRUE(data[0].at("data").as_array().empty());
  expect_states(std::string(data[0].at("kv_transfer_params").at("hidden_states_path").as_string()), "abc");
  expect_states(std::string(data[1].at("kv_transfer_params").at("hidden_states_path").as_string()), "de");
  EXPECT_EQ(num_files(), 2U);
}

TEST_F(HiddenStatesHttp, MissingFolderFailsOnlyTheRequest) {
  start({.hidden_states_folder = folder + "/gone"});
  for (const auto& [path, body] :
       {std::pair("/v1/completions", R"({"prompt": "abc", "kv_transfer_params": {"hidden_states": true}})"),
        std::pair("/pooling", R"({"input": "abc", "task": "token_embed", "kv_transfer_params": {"hidden_states": true}})")}) {
    const auto refused = post(path, body);
    EXPECT_EQ(refused.status, 500U) << refused.body;
    EXPECT_NE(refused.error_message().find("No such file"), std::string::npos) << refused.body;
  }
  EXPECT_EQ(post("/pooling", R"({"input": "abc", "task": "token_embed"})").status, 200U) << "the server still answers";
}

TEST_F(HiddenStatesHttp, AreRefusedWithoutAFolderOrOverTheBound) {
  start();
  const auto nowhere = post("/pooling", R"({"input": "abc", "task": "token_embed", "kv_transfer_params": {"hidden_states": true}})");
  EXPECT_EQ(nowhere.error_param(), "kv_transfer_params");
  EXPECT_NE(nowhere.error_message().find("--hidden-states"), std::string::npos);
  stop_and_flush();
  start({.max_hidden_numbers = 8, .hidden_states_folder = folder});
  const std::pair<const char*, const char*> cases[] = {
      {R"({"prompt": "a", "stream": true, "kv_transfer_params": {"hidden_states": true}})", "kv_transfer_params"},
      {R"({"prompt": ["a", "b"], "kv_transfer_params": {"hidden_states": true}})", "kv_transfer_params"},
      {R"({"prompt": "a", "kv_transfer_params": 3})", "kv_transfer_params"},
      {R"({"prompt": "a", "kv_transfer_params": {"hidden_states": 3}})", "kv_transfer_params.hidden_states"},
      {R"({"prompt": "a", "kv_transfer_params": {"hidden": true}})", "kv_transfer_params.hidden"},
      {R"({"prompt": "abc", "kv_transfer_params": {"hidden_states": true}})", "prompt"}};
  for (const auto& [body, field] : cases) {
    const auto refused = post("/v1/completions", body);
    EXPECT_EQ(refused.status, 400U) << body << refused.body;
    EXPECT_EQ(refused.error_param(), field) << body << refused.body;
  }
  EXPECT_EQ(post("/pooling", R"({"input": "a", "kv_transfer_params": {"hidden_states": true}})").error_param(), "task");
  EXPECT_EQ(num_files(), 0U);
}

TEST_F(HiddenStatesHttp, AreWrittenWholeOrNotAtAll) {
  const std::vector<TokenId> tokens{97, 98};
  const std::vector<float> rows{97, 0, 0, 0, 98, 0, 0, 0};
  const auto path = write_hidden_states({folder, ""}, "x", tokens, rows);
  ASSERT_TRUE(path) << path.error().to_string();
  expect_states(*path, "ab");
  EXPECT_EQ(write_hidden_states({folder, ""}, "x", tokens, rows).error().field, "X-Request-Id") << "an existing file is never replaced";
  // The file size limit makes writes fail as on a full disk.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit low{16, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const auto full = write_hidden_states({folder, ""}, "full", tokens, rows);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::io);
  EXPECT_NE(full.error().message.find("File too large"), std::string::npos) << full.error().message;
  EXPECT_EQ(num_files(), 1U);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file()) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

TEST_F(HiddenStatesHttp, FilesAreReadableByTheOwnerOnly) {
  const std::vector<TokenId> tokens{97};
  const std::vector<float> rows{97, 0, 0, 0};
  const ::mode_t before = ::umask(0);
  for (const char* tenant : {"", "a"}) {
    const auto path = write_hidden_states({folder, tenant}, "x", tokens, rows);
    ASSERT_TRUE(path) << path.error().to_string();
    EXPECT_EQ(std::filesystem::status(*path).permissions(), std::filesystem::perms(0600));
  }
  ::umask(before);
  EXPECT_EQ(std::filesystem::status(folder + "/tenant-a").permissions(), std::filesystem::perms(0700));
}

// A symbolic link in place of a temporary file must not be followed.
TEST_F(HiddenStatesHttp, FollowNoLinks) {
  const std::string elsewhere = folder + "/elsewhere";
  std::filesystem::create_symlink(elsewhere, folder + "/.x.tmp");
  const auto path = write_hidden_states({folder, ""}, "x", std::vector<TokenId>{97}, std::vector<float>{97, 0, 0, 0});
  ASSERT_TRUE(path) << path.error().to_string();
  EXPECT_FALSE(std::filesystem::exists(elsewhere));
}

// A tenant that writes without end loses only its own oldest files; other tenants keep theirs.
TEST_F(HiddenStatesHttp, TenantOverItsLimitLosesItsOldestFiles) {
  const std::vector<TokenId> tokens(64, 97);
  const std::vector<float> rows(64 * kStatesWidth, 1.0F);
  const auto write = [&](const char* tenant, const std::string& name, std::uint64_t max_bytes) {
    const auto path = write_hidden_states({folder, tenant, max_bytes}, name, tokens, rows);
    ASSERT_TRUE(path) << path.error().to_string();
    static int age = 0;
    std::filesystem::last_write_time(*path, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(++age - 10'000));
  };
  const std::string foreign = folder + "/notes.txt";
  std::ofstream(foreign) << std::string(100'000, 'x');
  std::filesystem::last_write_time(foreign, std::filesystem::file_time_type::clock::now() - std::chrono::hours(100));
  const std::string foreign_folder = folder + "/other";
  std::filesystem::create_directory(foreign_folder);
  std::ofstream(foreign_folder + "/old.safetensors") << std::string(100'000, 'x');
  write("few", "a", 0);
  const std::uint64_t num_bytes = std::filesystem::file_size(folder + "/tenant-few/a.safetensors");
  const std::uint64_t budget = 6 * num_bytes;
  write("few", "b", budget);
  for (int i = 10; i < 40; ++i) write("many", std::to_string(i), budget);
  EXPECT_EQ(names_in(folder + "/tenant-few"), (std::vector<std::string>{"a.safetensors", "b.safetensors"}));
  EXPECT_EQ(names_in(folder + "/tenant-many"),
            (std::vector<std::string>{"36.safetensors", "37.safetensors", "38.safetensors", "39.safetensors"}));
  write("", "own", budget);
  EXPECT_EQ(names_in(folder + "/tenant-many").size(), 3U);
  EXPECT_TRUE(std::filesystem::exists(foreign)) << "a file of somebody else neither counts nor goes";
  EXPECT_EQ(names_in(foreign_folder), std::vector<std::string>{"old.safetensors"}) << "a folder that is no tenant's neither";
  const auto refused = write_hidden_states({folder, "few", num_bytes - 1}, "c", tokens, rows);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::too_large);
  EXPECT_EQ(names_in(folder + "/tenant-many").size(), 3U) << "a file that does not fit evicts no other file";
}

TEST_F(HiddenStatesHttp, TenantsHaveSeparateFolders) {
  const std::vector<TokenId> tokens{97, 98};
  const std::vector<float> rows{97, 0, 0, 0, 98, 0, 0, 0};
  for (const char* tenant : {"", "a", ".."}) {
    const auto path = write_hidden_states({folder, tenant}, "x", tokens, rows);
    ASSERT_TRUE(path) << tenant << path.error().to_string();
    EXPECT_TRUE(path->starts_with(folder + "/")) << *path;
    expect_states(*path, "ab");
    EXPECT_EQ(write_hidden_states({folder, tenant}, "x", tokens, rows).error().field, "X-Request-Id") << tenant;
  }
  std::filesystem::remove_all(folder);
  EXPECT_EQ(write_hidden_states({folder, "a"}, "y", tokens, rows).error().code, ErrorCode::io) << "a removed folder is not created again";
}

}  // namespace
}  // namespace quire
