#pragma once
// Parsers of single lines, which add the line's requests to a workload (docs/simulate.md). JsonLine keeps the first error of the line;
// after an error, the workload must be discarded.
#include <string_view>

#include "lab/workload/json_line.h"
#include "quire/simulation.h"

namespace quire {

// Maximum token count in a file.
inline constexpr std::uint64_t kMostTokens = 1ULL << 28U;

enum class WorkloadFormat : std::uint8_t { unknown, mooncake, tokens, vllm_run, sessions, mini_swe, azure };

// Returns the format of a file, recognized by its first line.
WorkloadFormat format_of(std::string_view line);

void take_mooncake(const JsonLine& line, Workload& workload);
void take_tokens(const JsonLine& line, Workload& workload);
void take_vllm_run(const JsonLine& line, Workload& workload);
void take_session(const JsonLine& line, Workload& workload, std::string& wrong);
void take_mini_swe(const JsonLine& line, Workload& workload, std::string& wrong);

// Adds the request of a line such as "2023-11-16 18:15:46.6805900,374,44". Times become seconds since an arbitrary origin. Returns what is
// wrong with the line; empty: nothing.
std::string take_azure(std::string_view line, Workload& workload);

}  // namespace quire
