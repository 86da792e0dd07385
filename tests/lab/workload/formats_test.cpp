// Tests each field that one line of a workload file gives, and each bound that a line must keep.
#include "lab/workload/formats.h"

#include <fmt/format.h>

#include "lab/lab_support.h"

namespace quire {
namespace {

// Adds the line to the workload. Returns what is wrong with it, or an empty text.
template <class Take>
std::string add_line(const Take& take, std::string_view text, Workload& workload) {
  const boost::json::value value = boost::json::parse(text);
  std::string wrong;
  const JsonLine line(value.get_object(), wrong);
  if constexpr (requires { take(line, workload, wrong); })
    take(line, workload, wrong);
  else
    take(line, workload);
  return wrong;
}

template <class Take>
std::string wrong_of_line(const Take& take, std::string_view text) {
  Workload workload;
  return add_line(take, text, workload);
}

// Returns the fields of a request in one text.
std::string fields_of(const WorkloadRequest& one) {
  return fmt::format("start {} after {} session {} in {} out {} runs {}+{} ends {} space {} shared {}", one.start_s,
                     one.after == kNoRequest ? "none" : std::to_string(one.after), one.session, one.prompt_tokens, one.output_tokens,
                     one.first_run, one.num_runs, one.ends_session, one.name_space, one.shared_ids);
}

std::string runs_of(const Workload& workload) {
  std::string text;
  for (const IdRun& run : workload.runs) text += fmt::format("{}+{} ", run.first, run.count);
  return text;
}

TEST(AzureLine, TimesAreSecondsSince1970) {
  const std::pair<const char*, double> times[] = {
      {"1970-01-01 00:00:00", 0.0},          {"1970-01-01T00:01:01.5", 61.5},       {"1970-03-01 00:00:00", 5097600.0},
      {"1972-02-29 12:00:00", 68212800.0},   {"1999-12-31 23:59:59", 946684799.0},  {"2000-02-29 00:00:00", 951782400.0},
      {"2000-03-01 00:00:00", 951868800.0},  {"2023-08-31 00:00:00", 1693440000.0}, {"2100-02-28 00:00:00", 4107456000.0},
      {"2100-03-01 00:00:00", 4107542400.0}, {"2400-12-31 01:00:00", 13601005200.0}};
  for (const auto& [time, seconds] : times) {
    Workload workload;
    EXPECT_EQ(take_azure(fmt::format("{},7,9", time), workload), "");
    ASSERT_EQ(workload.requests.size(), 1U);
    EXPECT_EQ(fields_of(workload.requests[0]),
              fmt::format("start {} after none session 0 in 7 out 9 runs 0+0 ends true space 0 shared 0", seconds));
  }
}

TEST(AzureLine, NumbersOfTokensHaveBounds) {
  const auto wrong = [](std::string_view rest) {
    Workload workload;
    std::string said = take_azure(fmt::format("2023-11-16 18:15:46.68{}", rest), workload);
    EXPECT_EQ(workload.requests.size(), said.empty() ? 1U : 0U) << rest;
    return said;
  };
  EXPECT_EQ(wrong(",1,1"), "");
  EXPECT_EQ(wrong(",268435456,268435456"), "");
  for (const char* rest : {",0,1", ",1,0", ",268435457,1", ",1,268435457", ",,1", ",1,", ",1x,1", ",1,1x", ",-1,1", ", 1,1"})
    EXPECT_EQ(wrong(rest), "has a number of tokens outside 1 to 268435456") << rest;
  EXPECT_EQ(wrong(",1"), "has 2 columns instead of 3");
  EXPECT_EQ(wrong(",1,1,1"), "has 4 columns instead of 3");
}

TEST(MooncakeLine, ConsecutiveIdsAreOneRun) {
  Workload workload;
  EXPECT_EQ(add_line(take_mooncake, R"({"timestamp": 1500, "input_length": 3072, "output_length": 4, "hash_ids": [5, 6, 7, 9, 10, 4]})",
                     workload),
            "");
  // The first id follows the last id of the previous request, but belongs to another run.
  EXPECT_EQ(add_line(take_mooncake, R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [5]})", workload), "");
  EXPECT_EQ(add_line(take_mooncake, R"({"timestamp": 2, "input_length": 1024, "output_length": 9, "hash_ids": [6, 7]})", workload), "");
  EXPECT_EQ(workload.id_tokens, 512U);
  EXPECT_EQ(runs_of(workload), "5+3 9+2 4+1 5+1 6+2 ");
  EXPECT_EQ(fields_of(workload.requests[0]), "start 1.5 after none session 0 in 3072 out 4 runs 0+3 ends true space 0 shared 0");
  EXPECT_EQ(fields_of(workload.requests[1]), "start 0 after none session 1 in 1 out 1 runs 3+1 ends true space 0 shared 0");
  EXPECT_EQ(fields_of(workload.requests[2]), "start 0.002 after none session 2 in 1024 out 9 runs 4+1 ends true space 0 shared 0");
  EXPECT_FALSE(workload.requests[0].has_tokens);
}

TEST(MooncakeLine, HasOneIdPer512Tokens) {
  const auto wrong = [](std::uint32_t tokens, std::string_view ids) {
    return wrong_of_line(take_mooncake,
                         fmt::format(R"({{"timestamp": 0, "input_length": {}, "output_length": 1, "hash_ids": [{}]}})", tokens, ids));
  };
  for (const auto& [tokens, ids] : {std::pair(1U, "1"), {511U, "1"}, {512U, "1"}, {513U, "1, 1"}, {1024U, "1, 8"}, {1025U, "1, 2, 3"}})
    EXPECT_EQ(wrong(tokens, ids), "") << tokens;
  EXPECT_EQ(wrong(512, "1, 2"), "`hash_ids` has 2 ids for 512 tokens, but needs one per 512 tokens");
  EXPECT_EQ(wrong(513, "1"), "`hash_ids` has 1 ids for 513 tokens, but needs one per 512 tokens");
  EXPECT_EQ(wrong(1, ""), "`hash_ids` has 0 ids for 1 tokens, but needs one per 512 tokens");
  for (const char* id : {"-1", "1.5", "\"1\"", "null"})
    EXPECT_EQ(wrong(512, id), "`hash_ids` has an entry that is not a whole number") << id;
  EXPECT_EQ(wrong_of_line(take_mooncake, R"({"timestamp": 0, "input_length": 1, "output_length": 1})"), "`hash_ids` is not a list");
  EXPECT_EQ(wrong_of_line(take_mooncake, R"({"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": [1]})"),
            "`input_length` is not a whole number from 1 to 268435456");
  EXPECT_EQ(wrong_of_line(take_mooncake, R"({"timestamp": 0, "input_length": 1, "output_length": 268435457, "hash_ids": [1]})"),
            "`output_length` is not a whole number from 1 to 268435456");
}

TEST(TokensLine, TokensFollowEachOther) {
  Workload workload;
  EXPECT_EQ(add_line(take_tokens, R"({"arrival_time_ns": 1500000000, "input_toks": 2, "output_toks": 3, "input_tok_ids": [0, 2147483647]})",
                     workload),
            "");
  EXPECT_EQ(add_line(take_tokens, R"({"arrival_time_ns": 0, "input_toks": 1, "output_toks": 1, "input_tok_ids": [8]})", workload), "");
  EXPECT_EQ(workload.tokens, (std::vector<TokenId>{0, 2147483647, 8}));
  EXPECT_EQ(fields_of(workload.requests[0]), "start 1.5 after none session 0 in 2 out 3 runs 0+0 ends true space 0 shared 0");
  EXPECT_EQ(fields_of(workload.requests[1]), "start 0 after none session 1 in 1 out 1 runs 0+0 ends true space 0 shared 0");
  EXPECT_TRUE(workload.requests[0].has_tokens && workload.requests[1].has_tokens);
  EXPECT_EQ(workload.requests[0].first_token, 0U);
  EXPECT_EQ(workload.requests[1].first_token, 2U);
}

TEST(TokensLine, RefusesWhatIsNotAToken) {
  const auto wrong = [](std::uint32_t count, std::string_view ids) {
    return wrong_of_line(take_tokens,
                         fmt::format(R"({{"arrival_time_ns": 0, "input_toks": {}, "output_toks": 1, "input_tok_ids": {}}})", count, ids));
  };
  EXPECT_EQ(wrong(2, "[1]"), "`input_tok_ids` has 1 ids, but `input_toks` is 2");
  EXPECT_EQ(wrong(1, "[1, 2]"), "`input_tok_ids` has 2 ids, but `input_toks` is 1");
  EXPECT_EQ(wrong(1, "7"), "`input_tok_ids` is not a list");
  for (const char* id : {"[2147483648]", "[-1]", "[0.5]", "[[]]"})
    EXPECT_EQ(wrong(1, id), "`input_tok_ids` has an entry that is not a token id") << id;
}

TEST(VllmRunLine, GivesTimeAndLengths) {
  Workload workload;
  EXPECT_EQ(add_line(take_vllm_run, R"({"arrival_time": 2.5, "input_toks": 3, "output_toks": 4})", workload), "");
  EXPECT_EQ(add_line(take_vllm_run, R"({"arrival_time": 0, "input_toks": 1, "output_toks": 1})", workload), "");
  EXPECT_EQ(fields_of(workload.requests[0]), "start 2.5 after none session 0 in 3 out 4 runs 0+0 ends true space 0 shared 0");
  EXPECT_EQ(fields_of(workload.requests[1]), "start 0 after none session 1 in 1 out 1 runs 0+0 ends true space 0 shared 0");
  EXPECT_EQ(wrong_of_line(take_vllm_run, R"({"arrival_time": -1, "input_toks": 3, "output_toks": 4})"),
            "`arrival_time` is not a number of at least 0");
}

TEST(WorkloadFormat, FollowsFromTheFirstLine) {
  const std::pair<const char*, WorkloadFormat> lines[] = {{"TIMESTAMP,a,b", WorkloadFormat::azure},
                                                          {"TIMESTAMP", WorkloadFormat::unknown},
                                                          {"", WorkloadFormat::unknown},
                                                          {"[\"hash_ids\"]", WorkloadFormat::unknown},
                                                          {"{}", WorkloadFormat::unknown},
                                                          {"{\"queued_ts\": 1, \"input_tok_ids\": []}", WorkloadFormat::vllm_run},
                                                          {"{\"input_tok_ids\": [], \"hash_ids\": []}", WorkloadFormat::tokens},
                                                          {"{\"hash_runs\": []}", WorkloadFormat::sessions},
                                                          {"{\"hash_ids\": []}", WorkloadFormat::mooncake},
                                                          {"{\"messages\": []}", WorkloadFormat::mini_swe},
                                                          {"{hash_ids}", WorkloadFormat::unknown}};
  for (const auto& [line, format] : lines) EXPECT_EQ(format_of(line), format) << line;
}

TEST(SessionLine, TurnsWaitForTheirSubAgents) {
  Workload workload;
  EXPECT_EQ(add_line(take_session,
                     R"({"block_size": 16, "hash_id_scope": "global", "tool_tokens": 40, "system_tokens": 24, "requests": [
                         {"in": 64, "out": 5, "think_time": 9, "hash_runs": [[3, 2], [8, 3]]},
                         {"type": "subagent", "duration_ms": 1250, "requests": [{"in": 16, "out": 1, "think_time": 0.5, "hash_runs": [[1, 1]]}]},
                         {"type": "subagent", "duration_ms": 1000, "requests": []},
                         {"in": 80, "out": 0, "think_time": 3, "hash_runs": [[3, 2]]},
                         {"in": 96, "out": 7, "think_time": 2, "hash_runs": []},
                         {"type": "subagent", "duration_ms": 5000, "requests": []},
                         {"type": "other", "in": 1, "out": 268435456, "think_time": 4, "hash_runs": [[7, 0]]},
                         {"in": 268435456, "out": 1, "hash_runs": [[3, 2]]}]})",
                     workload),
            "");
  EXPECT_EQ(workload.id_tokens, 16U);
  EXPECT_EQ(runs_of(workload), "3+2 8+3 1+1 3+2 7+0 3+2 ");
  const char* const fields[] = {"start 0 after none session 0 in 64 out 5 runs 0+2 ends false space 0 shared 4",
                                "start 0.5 after 0 session 0 in 16 out 1 runs 2+1 ends false space 0 shared 4",
                                "start 0.75 after 1 session 0 in 80 out 1 runs 3+1 ends false space 0 shared 4",
                                "start 2 after 2 session 0 in 96 out 7 runs 4+0 ends false space 0 shared 4",
                                "start 0 after 3 session 0 in 1 out 268435456 runs 4+1 ends false space 0 shared 4",
                                "start 0 after 4 session 0 in 268435456 out 1 runs 5+1 ends true space 0 shared 4"};
  ASSERT_EQ(workload.requests.size(), std::size(fields));
  for (std::size_t i = 0; i < std::size(fields); ++i) EXPECT_EQ(fields_of(workload.requests[i]), fields[i]);
}

TEST(SessionLine, LocalIdsHaveANameSpacePerSession) {
  Workload workload;
  constexpr std::string_view kLine =
      R"({"block_size": 16, "tool_tokens": 40, "requests": [{"in": 1, "out": 1, "hash_runs": []}, {"in": 2, "out": 1, "hash_runs": []}]})";
  EXPECT_EQ(add_line(take_session, kLine, workload), "");
  EXPECT_EQ(add_line(take_session, R"({"block_size": 16, "requests": []})", workload), "");
  EXPECT_EQ(add_line(take_session, kLine, workload), "");
  ASSERT_EQ(workload.requests.size(), 4U);
  EXPECT_EQ(fields_of(workload.requests[0]), "start 0 after none session 0 in 1 out 1 runs 0+0 ends false space 1 shared 0");
  EXPECT_EQ(fields_of(workload.requests[1]), "start 0 after 0 session 0 in 2 out 1 runs 0+0 ends true space 1 shared 0");
  EXPECT_EQ(fields_of(workload.requests[2]), "start 0 after none session 1 in 1 out 1 runs 0+0 ends false space 2 shared 0");
  EXPECT_EQ(fields_of(workload.requests[3]), "start 0 after 2 session 1 in 2 out 1 runs 0+0 ends true space 2 shared 0");
  EXPECT_EQ(add_line(take_session, R"({"block_size": 32, "requests": []})", workload), "`block_size` differs from earlier lines");
}

TEST(SessionLine, FieldsHaveBounds) {
  const auto of_session = [](std::string_view fields) {
    return wrong_of_line(take_session, fmt::format(R"({{{}, "requests": [{{"in": 1, "out": 1, "hash_runs": []}}]}})", fields));
  };
  for (const char* fine : {R"("block_size": 1)", R"("block_size": 1048576)", R"("block_size": 1, "tool_tokens": 0, "system_tokens": 0)",
                           R"("block_size": 1, "tool_tokens": 268435456, "system_tokens": 268435456)"})
    EXPECT_EQ(of_session(fine), "") << fine;
  EXPECT_EQ(of_session(R"("block_size": 0)"), "`block_size` is not a whole number from 1 to 1048576");
  EXPECT_EQ(of_session(R"("block_size": 1048577)"), "`block_size` is not a whole number from 1 to 1048576");
  EXPECT_EQ(of_session(R"("block_size": 1, "tool_tokens": 268435457)"), "`tool_tokens` is not a whole number from 0 to 268435456");
  EXPECT_EQ(of_session(R"("block_size": 1, "system_tokens": 268435457)"), "`system_tokens` is not a whole number from 0 to 268435456");
  EXPECT_EQ(of_session(R"("block_size": 1, "system_tokens": -1)"), "`system_tokens` is not a whole number from 0 to 268435456");
  EXPECT_EQ(wrong_of_line(take_session, R"({"block_size": 1})"), "`requests` is not a list");

  const auto of_turns = [](std::string_view turns) {
    return wrong_of_line(take_session, fmt::format(R"({{"block_size": 16, "requests": [{}]}})", turns));
  };
  const std::string first = R"({"in": 1, "out": 1, "hash_runs": []}, )";
  EXPECT_EQ(of_turns("7"), "`requests` has an entry that is not an object");
  EXPECT_EQ(of_turns(R"({"in": 0, "out": 1, "hash_runs": []})"), "`in` is not a whole number from 1 to 268435456");
  EXPECT_EQ(of_turns(R"({"in": 268435457, "out": 1, "hash_runs": []})"), "`in` is not a whole number from 1 to 268435456");
  EXPECT_EQ(of_turns(R"({"in": 1, "out": 268435457, "hash_runs": []})"), "`out` is not a whole number from 0 to 268435456");
  EXPECT_EQ(of_turns(R"({"in": 1, "hash_runs": []})"), "`out` is missing");
  EXPECT_EQ(of_turns(R"({"in": 1, "out": 1, "hash_runs": [], "think_time": -1})"), "") << "the first turn waits for nothing";
  EXPECT_EQ(of_turns(first + R"({"in": 1, "out": 1, "hash_runs": [], "think_time": -1})"), "`think_time` is not a number of at least 0");
  EXPECT_EQ(of_turns(first + R"({"type": "subagent", "duration_ms": -1, "requests": []})"), "`duration_ms` is not a number of at least 0");
  EXPECT_EQ(of_turns(first + R"({"type": "subagent"})"), "`requests` is not a list");
  EXPECT_EQ(of_turns(first + R"({"type": "subagent", "requests": [{"type": "subagent", "requests": []}]})"),
            "`requests` has a sub-agent within a sub-agent");
}

TEST(SessionLine, RunsCoverAtMostThePrompt) {
  const auto wrong = [](std::uint32_t block_size, std::uint32_t tokens, std::string_view runs) {
    return wrong_of_line(take_session, fmt::format(R"({{"block_size": {}, "requests": [{{"in": {}, "out": 1, "hash_runs": {}}}]}})",
                                                   block_size, tokens, runs));
  };
  EXPECT_EQ(wrong(16, 32, "[[1, 3]]"), "");
  EXPECT_EQ(wrong(16, 31, "[[1, 1], [9, 1]]"), "");
  EXPECT_EQ(wrong(16, 32, "[[1, 2], [9, 2]]"), "`hash_runs` has 4 ids for 32 tokens");
  EXPECT_EQ(wrong(16, 31, "[[1, 3]]"), "`hash_runs` has 3 ids for 31 tokens");
  EXPECT_EQ(wrong(1, 268435456, "[[1, 268435456]]"), "");
  EXPECT_EQ(wrong(16, 32, "{}"), "`hash_runs` is not a list");
  for (const char* runs :
       {"[5]", "[[]]", "[[1]]", "[[1, 2, 3]]", "[[-1, 2]]", "[[1, -2]]", "[[1, 0.5]]", "[[\"1\", 2]]", "[[1, 268435457]]"})
    EXPECT_EQ(wrong(1, 268435456, runs), "`hash_runs` has an entry that is not a pair of a first id and a count") << runs;
}

TEST(MiniSweLine, TurnsAreOneGrowingPrompt) {
  Workload workload;
  EXPECT_EQ(
      add_line(take_mini_swe, R"({"requests": [{"t": 0, "prompt": 1, "out": 0}, {"t": 2.5, "prompt": 33, "out": 268435456}]})", workload),
      "");
  EXPECT_EQ(add_line(take_mini_swe, R"({"requests": [{"t": 7, "prompt": 268435456, "out": 2}]})", workload), "");
  EXPECT_EQ(workload.id_tokens, 16U);
  EXPECT_EQ(runs_of(workload), "0+0 0+2 4294967296+16777216 ");
  EXPECT_EQ(fields_of(workload.requests[0]), "start 0 after none session 0 in 1 out 1 runs 0+1 ends false space 0 shared 0");
  EXPECT_EQ(fields_of(workload.requests[1]), "start 2.5 after none session 0 in 33 out 268435456 runs 1+1 ends true space 0 shared 0");
  EXPECT_EQ(fields_of(workload.requests[2]), "start 7 after none session 1 in 268435456 out 2 runs 2+1 ends true space 0 shared 0");

  const auto wrong = [](std::string_view turn) { return wrong_of_line(take_mini_swe, fmt::format(R"({{"requests": [{}]}})", turn)); };
  EXPECT_EQ(wrong("1"), "`requests` has an entry that is not an object");
  EXPECT_EQ(wrong(R"({"t": -1, "prompt": 1, "out": 1})"), "`t` is not a number of at least 0");
  EXPECT_EQ(wrong(R"({"t": 0, "prompt": 0, "out": 1})"), "`prompt` is not a whole number from 1 to 268435456");
  EXPECT_EQ(wrong(R"({"t": 0, "prompt": 268435457, "out": 1})"), "`prompt` is not a whole number from 1 to 268435456");
  EXPECT_EQ(wrong(R"({"t": 0, "prompt": 1, "out": 268435457})"), "`out` is not a whole number from 0 to 268435456");
  EXPECT_EQ(wrong_of_line(take_mini_swe, "{}"), "`requests` is not a list");
}

}  // namespace
}  // namespace quire
