// Reads and writes the worker model as a JSON file.
#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <fstream>

#include "base/append_format.h"
#include "base/json_writer.h"
#include "quire/simulation.h"

namespace quire {
namespace {

using WorkerTerm = std::pair<std::string_view, double WorkerModel::*>;
constexpr std::array<WorkerTerm, 6> kWorkerTerms = {{{"host_s", &WorkerModel::host_s},
                                                     {"step_s", &WorkerModel::step_s},
                                                     {"prefill_token_s", &WorkerModel::prefill_token_s},
                                                     {"decode_row_s", &WorkerModel::decode_row_s},
                                                     {"context_token_s", &WorkerModel::context_token_s},
                                                     {"prefill_pair_s", &WorkerModel::prefill_pair_s}}};
constexpr std::size_t kMostBytes = 1U << 20U;

}  // namespace

Result<WorkerModel> read_worker_model(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::not_found, path, "cannot be read", "use a file that quire calibrate has written");
  std::string text(kMostBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(text, error);
  if (error || !value.is_object())
    return fail(ErrorCode::invalid_argument, path, "is not a JSON object", "use a file that quire calibrate has written");
  WorkerModel worker;
  for (const auto& [name, term] : kWorkerTerms) {
    const boost::json::value* const found = value.get_object().if_contains(name);
    const double seconds = found != nullptr && found->is_number() ? found->to_number<double>() : NAN;
    if (!(seconds >= 0.0 && seconds < 1e6))
      return fail(ErrorCode::invalid_argument, path, fmt::format("`{}` is not a valid number of seconds", name), "use 0 or more");
    worker.*term = seconds;
  }
  if (const auto* source = value.get_object().if_contains("source"); source != nullptr && source->is_string())
    worker.source = source->get_string();
  return worker;
}

std::string worker_model_json(const WorkerModel& worker) {
  std::string text = "{\n";
  for (const auto& [name, term] : kWorkerTerms) append_format(text, "  \"{}\": {:.6g},\n", name, worker.*term);
  return text + "  \"source\": " + json_string(worker.source) + "\n}\n";
}

}  // namespace quire
