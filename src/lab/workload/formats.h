#pragma once
// Adds one line of each format to a workload (docs/simulate.md). The JsonLine keeps the first error of the line; the workload must then be
// discarded.
#include <string_view>

#include "lab/workload/json_line.h"
#include "quire/simulation.h"

namespace quire {

// Largest token count that a file may state.
inline constexpr std::uint64_t kMostTokens = 1ULL << 28U;

enum class WorkloadFormat : std::uint8_t { unknown, mooncake, tokens, vllm_run, sessions, mini_swe, azure };

// Returns the format that the first line of a file shows.
WorkloadFormat format_of(std::string_view line);

void take_mooncake(const JsonLine& line, Workload& workload);
void take_tokens(const JsonLine& line, Workload& workload);
void take_vllm_run(const JsonLine& line, Workload& workload);
void take_session(const JsonLine& line, Workload& workload, std::string& wrong);
void take_mini_swe(const JsonLine& line, Workload& workload, std::string& wrong);

// Parses "2023-11-16 18:15:46.6805900,374,44". Times are in seconds since an arbitrary epoch. Returns what is wrong, or an empty text.
std::string take_azure(std::string_view line, Workload& workload);

}  // namespace quire
