#pragma once
// What one line of each format adds to a workload (docs/simulate.md). What is wrong with it the JsonLine keeps; the workload is then of no
// use.
#include <string_view>

#include "lab/workload/json_line.h"
#include "quire/simulation.h"

namespace quire {

// The largest count of tokens that a file may name.
inline constexpr std::uint64_t kMostTokens = 1ULL << 28U;

enum class WorkloadFormat : std::uint8_t { unknown, mooncake, tokens, vllm_run, sessions, mini_swe, azure };

// By the first line.
WorkloadFormat format_of(std::string_view line);

void take_mooncake(const JsonLine& line, Workload& workload);
void take_tokens(const JsonLine& line, Workload& workload);
void take_vllm_run(const JsonLine& line, Workload& workload);
void take_session(const JsonLine& line, Workload& workload, std::string& wrong);
void take_mini_swe(const JsonLine& line, Workload& workload, std::string& wrong);

// "2023-11-16 18:15:46.6805900,374,44". Times are seconds of any epoch. Answers what is wrong, or nothing.
std::string take_azure(std::string_view line, Workload& workload);

}  // namespace quire
