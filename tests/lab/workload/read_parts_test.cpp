// Tests the parts of reading a workload: lines, JSON fields, block hashes, options, and generated workloads.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <set>

#include "lab/lab_support.h"
#include "lab/workload/block_keys.h"
#include "lab/workload/json_line.h"
#include "lab/workload/line_reader.h"

namespace quire {
namespace {

using test::TextFile;

// ---- lines

// Returns the number and the length of each line, or the error.
std::string numbered_lines(const std::string& path) {
  auto reader = LineReader::open(path);
  if (!reader) return reader.error().to_string();
  EXPECT_EQ(reader->path(), path);
  std::string text;
  for (;;) {
    const auto more = reader->next();
    if (!more) return text + more.error().message;
    if (!*more) return text;
    const std::string field = reader->error("x", "y").field;
    EXPECT_TRUE(field.starts_with(path + ":"));
    text += fmt::format("{}:{} ", field.substr(path.size() + 1),
                        reader->line().size() > 8 ? std::to_string(reader->line().size()) : reader->line());
  }
}

TEST(LineReader, SkipsEmptyLinesAndCountsThem) {
  const std::pair<std::string, const char*> files[] = {{"", ""},
                                                       {"\n\r\n\n", ""},
                                                       {"a", "1:a "},
                                                       {"a\n", "1:a "},
                                                       {"a\r\nb\r\n", "1:a 2:b "},
                                                       {"\n\na\n\nb\r\n\r\nc", "3:a 5:b 7:c "},
                                                       {"a\rb\n\r", "1:a\rb "}};
  for (const auto& [text, lines] : files) EXPECT_EQ(numbered_lines(TextFile(text).path()), lines) << text;
}

// The file is read in pieces of 256 KiB.
TEST(LineReader, LinesMayBeLongerThanAPiece) {
  constexpr std::size_t kPiece = std::size_t{256} << 10U;
  for (const std::size_t length : {kPiece - 1, kPiece, kPiece + 1, 3 * kPiece}) {
    const std::string line(length, 'x');
    EXPECT_EQ(numbered_lines(TextFile("a\n" + line + "\nb\n" + line).path()), fmt::format("1:a 2:{0} 3:b 4:{0} ", length));
    EXPECT_EQ(numbered_lines(TextFile(line + "\n\nb").path()), fmt::format("1:{} 3:b ", length));
  }
  EXPECT_EQ(numbered_lines(TextFile(std::string(std::size_t{64} << 20U, 'x') + "\n").path()), "1:67108864 ");
}

TEST(LineReader, RefusesDamagedCompressedFiles) {
  const TextFile text("{\"a\": 1, \"b\": 2, \"c\": 3}\n{\"a\": 7}\n");
  const std::string packed = text.path() + ".gz";
  ASSERT_EQ(std::system(fmt::format("gzip -c '{}' > '{}'", text.path(), packed).c_str()), 0);
  const auto whole = LineReader::open(packed);
  if (whole) {
    EXPECT_EQ(numbered_lines(packed), "1:24 2:{\"a\": 7} ");
    std::fstream file(packed, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-8, std::ios::end).put('\x55').put('\x55');  // the checksum
    file.close();
    auto damaged = LineReader::open(packed);
    ASSERT_TRUE(damaged.has_value());
    Result<bool> more = true;
    while (more && *more) more = damaged->next();
    ASSERT_FALSE(more.has_value());
    EXPECT_EQ(more.error().code, ErrorCode::corrupt);
    EXPECT_EQ(more.error().field, packed);
    EXPECT_TRUE(more.error().message.starts_with("is a corrupted or truncated gzip file: ")) << more.error().message;
  }
  unlink(packed.c_str());
  EXPECT_EQ(numbered_lines("/nowhere/x"), "/nowhere/x: cannot be read; use a file that exists");
  EXPECT_EQ(numbered_lines("/tmp"), "/tmp: cannot be read; use a file that exists");
}

// ---- JSON

TEST(JsonLine, WholeNumbersMayHaveAPoint) {
  const std::pair<const char*, std::optional<std::uint64_t>> numbers[] = {{"0", 0},
                                                                          {"3", 3},
                                                                          {"3.0", 3},
                                                                          {"0.0", 0},

                                                                          {"9223372036854775807", 9223372036854775807},
                                                                          {"18446744073709551615", UINT64_MAX},

                                                                          {"1e300", {}},
                                                                          {"3.5", {}},
                                                                          {"-1", {}},
                                                                          {"-1.0", {}},
                                                                          {"true", {}},
                                                                          {"\"3\"", {}},
                                                                          {"null", {}}};
  for (const auto& [text, number] : numbers) EXPECT_EQ(whole_number(boost::json::parse(text)), number) << text;
  // Beyond this bound, a double cannot state every whole number.
  EXPECT_EQ(whole_number(boost::json::value(0x1p53 - 1.0)), 9007199254740991U);
  EXPECT_EQ(whole_number(boost::json::value(0x1p53)), std::nullopt);
}

TEST(JsonLine, FieldsHaveBoundsAndTheFirstErrorIsKept) {
  const boost::json::value value = boost::json::parse(R"({"five": 5, "half": 0.5, "word": "w", "list": [1, 2]})");
  const auto ask = [&](auto&& question) {
    std::string wrong;
    const JsonLine line(value.get_object(), wrong);
    return fmt::format("{} {}", question(line), wrong);
  };
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("five", 5, 5); }), "5 ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("five", 6, 9); }), "6 `five` is not a whole number from 6 to 9");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("five", 1, 4); }), "1 `five` is not a whole number from 1 to 4");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("half", 2, 4); }), "2 `half` is not a whole number from 2 to 4");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("none", 3, 4); }), "3 `none` is missing");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number("half", 0.5); }), "0.5 ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number("half", 0.75); }), "0.75 `half` is not a number of at least 0.75");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number("word", -2.0); }), "-2 `word` is not a number of at least -2");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number("none", 1.0); }), "1 `none` is missing");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number_or("none", 1.0, 0.25); }), "0.25 ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number_or("half", 0.0, 0.25); }), "0.5 ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number_or("half", 1.0, 0.25); }), "1 `half` is not a number of at least 1");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.text("word"); }), "w ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.text("five"); }), " ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.text("none"); }), " ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.has("word") && !line.has("none"); }), "true ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.array("list") == nullptr ? 0 : line.array("list")->size(); }), "2 ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.array("five") == nullptr; }), "true `five` is not a list");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("five", 6, 9) + line.count("none", 0, 1); }),
            "6 `five` is not a whole number from 6 to 9");
}

// ---- block hashes

// Returns the hashes of a prompt with these runs of ids.
std::vector<BlockHash> hashes_with(std::uint32_t id_tokens, std::uint32_t block_size, std::uint32_t prompt_tokens, std::vector<IdRun> runs,
                                   std::uint32_t name_space = 0, std::uint32_t shared_ids = 0) {
  Workload workload;
  workload.id_tokens = id_tokens;
  workload.runs = {{77, 9}};  // belongs to another request
  workload.runs.insert(workload.runs.end(), runs.begin(), runs.end());
  workload.runs.push_back({78, 9});
  WorkloadRequest request;
  request.prompt_tokens = prompt_tokens;
  request.first_run = 1;
  request.num_runs = static_cast<std::uint32_t>(runs.size());
  request.name_space = name_space;
  request.shared_ids = shared_ids;
  std::vector<BlockHash> names(3);  // is overwritten
  BlockHasher::create(workload, block_size).value().of(request, names);
  return names;
}

std::size_t num_equal(const std::vector<BlockHash>& a, const std::vector<BlockHash>& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

TEST(BlockHasher, NamesTheFullBlocksThatHaveIds) {
  struct Case {
    std::uint32_t id_tokens, block_size, prompt_tokens, num_ids;
    std::size_t num_names;
  };
  for (const Case& one : {Case{32, 16, 70, 3, 4},
                          {32, 16, 96, 3, 6},
                          {32, 16, 95, 3, 5},
                          {32, 16, 200, 3, 6},
                          {32, 32, 96, 3, 3},
                          {32, 32, 95, 3, 2},
                          {32, 64, 128, 3, 1},
                          {32, 64, 128, 4, 2},
                          {32, 64, 127, 4, 1},
                          {32, 64, 63, 2, 0},
                          {1, 4, 9, 9, 2},
                          {16, 16, 32, 0, 0},
                          {512, 16, 600, 2, 37}})
    EXPECT_EQ(hashes_with(one.id_tokens, one.block_size, one.prompt_tokens, {{5, one.num_ids}}).size(), one.num_names)
        << one.id_tokens << " " << one.block_size << " " << one.prompt_tokens;
  EXPECT_TRUE(hashes_with(0, 16, 64, {{5, 4}}).empty());
  EXPECT_TRUE(hashes_with(16, 16, 64, {}).empty());
}

TEST(BlockHasher, HashesAreEqualExactlyForEqualPrefixes) {
  for (const std::uint32_t block_size : {8U, 16U, 32U}) {
    const std::size_t per_id = 16 / std::min(block_size, 16U), per_block = std::max(block_size, 16U) / 16;
    const auto base = hashes_with(16, block_size, 128, {{5, 8}});
    ASSERT_EQ(base.size(), 128 / block_size);
    EXPECT_EQ(num_equal(base, hashes_with(16, block_size, 128, {{5, 3}, {8, 5}})), base.size()) << "only the ids count";
    for (const std::uint32_t same : {0U, 1U, 2U, 5U, 7U})
      EXPECT_EQ(num_equal(base, hashes_with(16, block_size, 128, {{5, same}, {100, 8 - same}})), same / per_block * per_id) << same;
    std::set<std::uint64_t> different;
    for (const BlockHash& name : base) different.insert(name.prefix());
    EXPECT_EQ(different.size(), base.size());
  }
}

TEST(BlockHasher, NameSpacesShareOnlyTheSharedIds) {
  const std::vector<IdRun> ids = {{5, 8}};
  for (const std::uint32_t shared : {0U, 1U, 3U, 7U}) {
    const auto first = hashes_with(16, 16, 128, ids, 1, shared), second = hashes_with(16, 16, 128, ids, 2, shared);
    EXPECT_EQ(num_equal(first, second), shared);
    EXPECT_EQ(num_equal(first, hashes_with(16, 16, 128, ids)), shared) << "space 0 is a separate one";
    EXPECT_EQ(num_equal(first, hashes_with(16, 16, 128, ids, 1, shared)), 8U);
    EXPECT_EQ(num_equal(hashes_with(16, 16, 128, ids, 0, shared), hashes_with(16, 16, 128, ids)), 8U);
  }
  EXPECT_EQ(num_equal(hashes_with(16, 16, 128, ids, 1, 8), hashes_with(16, 16, 128, ids, 2, 8)), 8U);
}

TEST(BlockHasher, BlocksAndIdsMustDivideEachOther) {
  const auto error_of = [](std::uint32_t id_tokens, std::uint32_t block_size) {
    Workload workload;
    workload.id_tokens = id_tokens;
    const auto made = BlockHasher::create(workload, block_size);
    if (made) EXPECT_EQ(made->block_size(), block_size);
    return made ? std::string() : made.error().to_string();
  };
  for (const auto& [id_tokens, block_size] : {std::pair(0U, 24U), {16U, 16U}, {16U, 8U}, {16U, 48U}, {1U, 7U}})
    EXPECT_EQ(error_of(id_tokens, block_size), "");
  EXPECT_EQ(error_of(16, 24), "block_size: is 24, but the workload has one block id per 16 tokens; use a divisor or a multiple of 16");
  EXPECT_NE(error_of(24, 16), "");
}

TEST(MixedHashes, CoverParentAndTokens) {
  MixedHashes hash;
  const auto name = [&](const BlockHash* parent, const std::vector<TokenId>& tokens) {
    HashInput input;
    input.tokens = tokens;
    return hash.hash(parent, input);
  };
  const auto of = [&](const BlockHash* parent, const std::vector<TokenId>& tokens) { return name(parent, tokens).prefix(); };
  const BlockHash parent = name(nullptr, {1, 2}), other = name(nullptr, {2, 1});
  EXPECT_EQ(of(&parent, {3, 4}), of(&parent, {3, 4}));
  const std::set<std::uint64_t> different = {of(nullptr, {3, 4}), of(&parent, {3, 4}), of(&other, {3, 4}), of(&parent, {4, 3}),
                                             of(&parent, {3, 5}), of(&parent, {4, 4}), parent.prefix(),    other.prefix()};
  EXPECT_EQ(different.size(), 8U);
}

// ---- options

std::string mooncake_at(const std::vector<int>& times_ms) {
  std::string text;
  for (std::size_t i = 0; i < times_ms.size(); ++i)
    text += fmt::format("{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": 1, \"hash_ids\": [{}]}}\n", times_ms[i], i + 1, i);
  return text;
}

Workload read_text(std::string_view text, WorkloadOptions options = {}) {
  const TextFile file(text);
  options.path = file.path();
  auto workload = read_workload(options);
  EXPECT_TRUE(workload.has_value()) << workload.error().to_string();
  if (workload) EXPECT_EQ(file.path(), ::testing::TempDir() + workload->name);
  return workload.value_or(Workload{});
}

std::string starts_of(const Workload& workload) {
  std::string text;
  for (const WorkloadRequest& request : workload.requests) text += fmt::format("{}@{:g} ", request.prompt_tokens, request.start_s);
  return text;
}

TEST(ReadWorkload, SpreadsEachBurstUpToTheNextTime) {
  const std::string text = mooncake_at({500, 500, 500, 3500, 3500, 5500, 9500, 9500, 9500});
  EXPECT_EQ(starts_of(read_text(text)), "1@0 2@0 3@0 4@3 5@3 6@5 7@9 8@9 9@9 ");
  EXPECT_EQ(starts_of(read_text(text, {.spread_bursts = true})), "1@0 2@1 3@2 4@3 5@4 6@5 7@9 8@9 9@9 ");
  EXPECT_EQ(starts_of(read_text(text, {.rate_scale = 0.5, .spread_bursts = true})), "1@0 2@2 3@4 4@6 5@8 6@10 7@18 8@18 9@18 ");
  EXPECT_EQ(starts_of(read_text(mooncake_at({7}), {.spread_bursts = true})), "1@0 ");
  EXPECT_EQ(read_text(text).notes,
            (std::vector<std::string>{"requests of equal time arrive together, as bursts",
                                      "the ids cover only prompts: prompts do not hit cached blocks of earlier outputs"}));
  EXPECT_EQ(read_text(text, {.spread_bursts = true}).notes.front(), "requests of equal time are spread evenly up to the next time");
}

TEST(ReadWorkload, RequestsOfEqualTimeKeepTheirOrder) {
  const Workload workload = read_text(mooncake_at({4000, 2000, 4000, 2000, 3000}));
  EXPECT_EQ(starts_of(workload), "2@0 4@0 5@1 1@2 3@2 ");
  EXPECT_EQ(workload.notes.front(), "requests were sorted by time");
  EXPECT_EQ(workload.notes.size(), 3U);
}

TEST(ReadWorkload, ReadsAtMostTheGivenNumberOfRequests) {
  const std::string text = mooncake_at({0, 1000, 2000});
  EXPECT_EQ(starts_of(read_text(text, {.max_requests = 1})), "1@0 ");
  EXPECT_EQ(starts_of(read_text(text, {.max_requests = 3})), "1@0 2@1 3@2 ");
  EXPECT_EQ(starts_of(read_text(text, {.max_requests = 4})), "1@0 2@1 3@2 ");
  EXPECT_EQ(starts_of(read_text("TIMESTAMP,a,b\n2023-01-01 00:00:00,5,1\n2023-01-01 00:00:01,6,1\n", {.max_requests = 1})), "5@0 ");
  // A later line with another format or another header is an error.
  const TextFile twice("TIMESTAMP,a,b\n2023-01-01 00:00:00,5,1\nTIMESTAMP,a,b\n");
  EXPECT_EQ(read_workload({.path = twice.path()}).error().field, twice.path() + ":3");
}

TEST(ReadWorkload, OptionsHaveBounds) {
  const TextFile file(mooncake_at({0}));
  const auto error_of = [&](WorkloadOptions options) {
    options.path = file.path();
    const auto read = read_workload(options);
    return read ? std::string() : read.error().to_string();
  };
  EXPECT_EQ(error_of({.rate_scale = 1e-9}), "");
  EXPECT_EQ(error_of({.rate_scale = -1.0}), "rate_scale: is -1; use a positive number, such as 2");
  EXPECT_EQ(error_of({.rate_scale = INFINITY}), "rate_scale: is inf; use a positive number, such as 2");
  EXPECT_EQ(error_of({.rate_scale = NAN}), "rate_scale: is nan; use a positive number, such as 2");
  EXPECT_EQ(error_of({.ramp_s = 0.0}), "");
  EXPECT_EQ(error_of({.ramp_s = -0.5}), "ramp: is -0.5; use 0 or more seconds");
  EXPECT_EQ(error_of({.ramp_s = INFINITY}), "ramp: is inf; use 0 or more seconds");
  EXPECT_EQ(error_of({.max_think_s = 0.0}), "");
  EXPECT_EQ(error_of({.max_think_s = INFINITY}), "");
  EXPECT_EQ(error_of({.max_think_s = -0.5}), "max_think: is -0.5; use 0 or more seconds; 0 keeps the recorded times");
  EXPECT_EQ(error_of({.max_think_s = NAN}), "max_think: is nan; use 0 or more seconds; 0 keeps the recorded times");
  EXPECT_EQ(error_of({.num_agents = 10'000'001}), "agents: is 10000001; use at most 10000000");
}

std::string two_sessions() {
  std::string text;
  for (int session = 0; session < 2; ++session)
    text += fmt::format(
        "{{\"block_size\": 16, \"requests\": [{{\"in\": {0}0, \"out\": 1, \"hash_runs\": []}}, {{\"in\": {0}1, \"out\": 1, \"think_time\": "
        "8, "
        "\"hash_runs\": []}}]}}\n",
        session + 1);
  return text;
}

TEST(ReadWorkload, EachAgentPlaysASession) {
  const auto text_of_agents = [](const WorkloadOptions& options) {
    const Workload workload = read_text(two_sessions(), options);
    std::string text;
    for (const WorkloadRequest& one : workload.requests)
      text += fmt::format("{}:{}{}/{} ", one.session, one.prompt_tokens, one.after == kNoRequest ? "" : "<" + std::to_string(one.after),
                          one.name_space);
    return text;
  };
  EXPECT_EQ(text_of_agents({}), "0:10/1 0:11<0/1 1:20/2 1:21<2/2 ");
  EXPECT_EQ(text_of_agents({.num_agents = 1}), "0:10/1 0:11<0/1 ");
  EXPECT_EQ(text_of_agents({.max_requests = 1}), "0:10/1 0:11<0/1 ") << "a session is read as a whole";
  EXPECT_EQ(text_of_agents({.max_requests = 2}), "0:10/1 0:11<0/1 ");
  EXPECT_EQ(text_of_agents({.max_requests = 3}), "0:10/1 0:11<0/1 1:20/2 1:21<2/2 ");
  // Further agents draw a session, which has a separate name space.
  std::set<std::string> drawn;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const std::string text = text_of_agents({.num_agents = 3, .seed = seed});
    EXPECT_TRUE(text.starts_with("0:10/1 0:11<0/1 1:20/2 1:21<2/2 "));
    drawn.insert(text.substr(text.find("2:")));
  }
  EXPECT_EQ(drawn, (std::set<std::string>{"2:10/5 2:11<4/5 ", "2:20/5 2:21<4/5 "}));
  EXPECT_EQ(read_text(two_sessions(), {.num_agents = 3, .ramp_s = 2.5, .seed = 4}).notes,
            (std::vector<std::string>{"3 agents, 2 sessions in the file, uniform random starts within 2.5 s (seed 4)"}));
}

TEST(ReadWorkload, ThinkTimesAreCutAndNotScaled) {
  const auto starts = [](const WorkloadOptions& options) { return starts_of(read_text(two_sessions(), options)); };
  EXPECT_EQ(starts({.ramp_s = 0.0}), "10@0 11@8 20@0 21@8 ");
  EXPECT_EQ(starts({.rate_scale = 4.0, .ramp_s = 0.0}), "10@0 11@8 20@0 21@8 ");
  EXPECT_EQ(starts({.ramp_s = 0.0, .max_think_s = 2.5}), "10@0 11@2.5 20@0 21@2.5 ");
  EXPECT_EQ(starts({.ramp_s = 0.0, .max_think_s = 9.0}), "10@0 11@8 20@0 21@8 ");
  const Workload slow = read_text(two_sessions(), {.ramp_s = 100.0, .seed = 2}),
                 fast = read_text(two_sessions(), {.rate_scale = 4.0, .ramp_s = 100.0, .seed = 2});
  for (const std::size_t first : {0U, 2U}) {
    EXPECT_GT(slow.requests[first].start_s, 1.0);
    EXPECT_LT(slow.requests[first].start_s, 100.0);
    EXPECT_EQ(fast.requests[first].start_s, slow.requests[first].start_s / 4.0);
  }
  EXPECT_NE(slow.requests[0].start_s, slow.requests[2].start_s);
}

TEST(ReadWorkload, PromptsMustMatchTheRun) {
  const TextFile run(
      "{\"queued_ts\": 1, \"arrival_time\": 1, \"input_toks\": 2, \"output_toks\": 1}\n"
      "{\"queued_ts\": 1, \"arrival_time\": 2, \"input_toks\": 1, \"output_toks\": 1}\n");
  const std::string first = "{\"arrival_time_ns\": 0, \"input_toks\": 2, \"output_toks\": 1, \"input_tok_ids\": [3, 4]}\n",
                    second = "{\"arrival_time_ns\": 0, \"input_toks\": 1, \"output_toks\": 1, \"input_tok_ids\": [5]}\n";
  const auto read_with = [&](const std::string& text) {
    const TextFile prompts(text);
    const auto read = read_workload({.path = run.path(), .prompts = prompts.path()});
    if (!read) return read.error().field == prompts.path() ? read.error().message : read.error().to_string();
    for (const WorkloadRequest& request : read->requests) EXPECT_TRUE(request.has_tokens);
    return fmt::format("{} from {} and {}", read->tokens, read->requests[0].first_token, read->requests[1].first_token);
  };
  EXPECT_EQ(read_with(first + second), "[3, 4, 5] from 0 and 2");
  EXPECT_EQ(read_with(first + second + "damaged\n"), "[3, 4, 5] from 0 and 2") << "further lines are not read";
  EXPECT_EQ(read_with(first), "line 2 is not the prompt of request 1");
  EXPECT_EQ(read_with(first + first), "line 2 is not the prompt of request 1");
  EXPECT_EQ(read_with("{\"queued_ts\": 1, \"arrival_time\": 1, \"input_toks\": 2, \"output_toks\": 1}\n"),
            "line 1 is not the prompt of request 0");
  EXPECT_EQ(read_workload({.path = run.path(), .prompts = "/nowhere"}).error().code, ErrorCode::not_found);
}

// ---- generated workloads

TEST(Generator, OptionsHaveBounds) {
  const auto error_of = [](const GeneratorOptions& options) {
    const auto made = generate_workload(options);
    return made ? std::string() : made.error().to_string();
  };
  EXPECT_EQ(error_of({.num_requests = 0}), "requests: is 0; use 1 to 50000000");
  EXPECT_EQ(error_of({.num_requests = 50'000'001}), "requests: is 50000001; use 1 to 50000000");
  EXPECT_EQ(error_of({.num_requests = 1}), "");
  EXPECT_EQ(error_of({.num_requests = 1, .rate_per_s = 1e-3}), "");
  EXPECT_EQ(error_of({.rate_per_s = -1.0}), "rate: is -1; use requests per second, or inf for all at the same time");
  EXPECT_EQ(error_of({.rate_per_s = NAN}), "rate: is nan; use requests per second, or inf for all at the same time");
  for (const double mean : {1.0, 1e8}) EXPECT_EQ(error_of({.num_requests = 1, .input_tokens = mean, .output_tokens = mean}), "");
  for (const double mean : {0.99, 1.01e8, -1.0, static_cast<double>(NAN)}) {
    EXPECT_EQ(error_of({.input_tokens = mean}), fmt::format("input-tokens: is {}; use a mean of 1 to 1e8", mean));
    EXPECT_EQ(error_of({.output_tokens = mean}), fmt::format("output-tokens: is {}; use a mean of 1 to 1e8", mean));
  }
  for (const double spread : {0.0, 100.0}) EXPECT_EQ(error_of({.num_requests = 1, .spread = spread}), "");
  for (const double spread : {-0.01, 100.5, static_cast<double>(NAN)})
    EXPECT_EQ(error_of({.spread = spread}), fmt::format("spread: is {}; use 0 to 100", spread));
  EXPECT_EQ(error_of({.num_prefixes = 0}), "prefixes: is 0; use 1 or more");
}

TEST(Generator, LengthsAreTheMeansWithoutSpread) {
  const Workload workload = generate_workload({.num_requests = 3,
                                               .rate_per_s = INFINITY,
                                               .input_tokens = 50.0,
                                               .output_tokens = 1.0,
                                               .spread = 0.0,
                                               .shared_tokens = 40,
                                               .seed = 6})
                                .value();
  EXPECT_EQ(workload.name, "generated");
  EXPECT_EQ(workload.id_tokens, 16U);
  EXPECT_EQ(workload.notes, (std::vector<std::string>{"Poisson arrivals at inf/s, log-normal lengths (seed 6)"}));
  ASSERT_EQ(workload.requests.size(), 3U);
  ASSERT_EQ(workload.runs.size(), 6U);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const WorkloadRequest& request = workload.requests[i];
    EXPECT_EQ(request.start_s, 0.0);
    EXPECT_EQ(request.after, kNoRequest);
    EXPECT_EQ(request.session, i);
    EXPECT_TRUE(request.ends_session);
    EXPECT_EQ(request.prompt_tokens, 50U);
    EXPECT_EQ(request.output_tokens, 1U);
    EXPECT_EQ(request.first_run, 2 * i);
    EXPECT_EQ(request.num_runs, 2U);
    EXPECT_EQ(workload.runs[std::size_t{2} * i].first, 0U);
    EXPECT_EQ(workload.runs[std::size_t{2} * i].count, 2U) << "the full blocks of 40 shared tokens";
    EXPECT_EQ(workload.runs[2 * i + 1].count, 1U) << "the other full block";
  }
  std::set<std::uint64_t> separate;
  for (const std::size_t run : {1U, 3U, 5U}) separate.insert(workload.runs[run].first);
  EXPECT_EQ(separate.size(), 3U);
}

TEST(Generator, LengthsStayWithinTheirBounds) {
  const auto draw = [](double mean, double spread, std::uint32_t shared) {
    std::pair<std::uint32_t, std::uint32_t> bounds = {UINT32_MAX, 0};
    const Workload workload =
        generate_workload({.num_requests = 1000, .input_tokens = mean, .output_tokens = mean, .spread = spread, .shared_tokens = shared})
            .value();
    for (const WorkloadRequest& request : workload.requests) {
      EXPECT_GT(request.prompt_tokens, shared);
      bounds = {std::min(bounds.first, request.output_tokens), std::max(bounds.second, request.output_tokens)};
    }
    return bounds;
  };
  EXPECT_EQ(draw(1.0, 100.0, 0).first, 1U);
  EXPECT_EQ(draw(1e8, 100.0, 0).second, 268435456U);
  EXPECT_EQ(draw(1e8, 0.0, 0), std::pair(100000000U, 100000000U));
  EXPECT_EQ(draw(3.0, 0.0, 100), std::pair(3U, 3U));
}

TEST(Generator, DrawsAllPrefixesAndSpreadsLengths) {
  constexpr std::uint32_t kCount = 20'000;
  const Workload workload = generate_workload({.num_requests = kCount,
                                               .rate_per_s = 10.0,
                                               .input_tokens = 5000.0,
                                               .output_tokens = 2000.0,
                                               .spread = 0.5,
                                               .shared_tokens = 32,
                                               .num_prefixes = 3})
                                .value();
  std::set<std::uint64_t> prefixes;
  double input = 0.0, square = 0.0, gap = 0.0, gap_square = 0.0;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const WorkloadRequest& request = workload.requests[i];
    prefixes.insert(workload.runs[request.first_run].first);
    input += request.prompt_tokens, square += static_cast<double>(request.prompt_tokens) * request.prompt_tokens;
    if (i == 0) continue;
    const double seconds = request.start_s - workload.requests[i - 1].start_s;
    EXPECT_GE(seconds, 0.0);
    gap += seconds, gap_square += seconds * seconds;
  }
  EXPECT_EQ(prefixes, (std::set<std::uint64_t>{0, std::uint64_t{1} << 32U, std::uint64_t{2} << 32U}));
  const double mean = input / kCount;
  EXPECT_NEAR(mean, 5000.0, 75.0);
  EXPECT_NEAR(std::sqrt(square / kCount - mean * mean), 2500.0, 125.0);
  // The standard deviation of the gaps of Poisson arrivals equals their mean.
  EXPECT_NEAR(gap / kCount, 0.1, 0.003);
  EXPECT_NEAR(std::sqrt(gap_square / kCount - gap * gap / kCount / kCount), 0.1, 0.005);
}

}  // namespace
}  // namespace quire
