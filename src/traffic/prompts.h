#pragma once
// Makes the bodies of requests. Prompts are English words, of which usual tokenizers make one token each, because a server does not publish
// its vocabulary.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "traffic/workloads.h"

namespace quire {

// The number of tokens of a prompt of n words: fixed_tokens + n * tokens_per_word. The fixed tokens are special tokens and the chat
// template.
struct WordScale {
  double fixed_tokens = 0.0, tokens_per_word = 1.0;
};

// The fields of all requests.
struct BodyOptions {
  std::string model{};
  bool is_chat = false;
  bool ignore_eos = false;
  std::optional<double> temperature{};
  boost::json::object extra{};  // added to each body, or replaces fields of it
};

// Stateless functions of the workload: equal requests give equal bodies. May be used by several threads.
class PromptWriter {
 public:
  // `workload` must outlive the writer.
  PromptWriter(const TrafficWorkload& workload, BodyOptions options, WordScale scale, std::uint64_t seed)
      : workload_(workload), options_(std::move(options)), scale_(scale), seed_(seed) {}

  // Returns the JSON body of a request of the workload.
  [[nodiscard]] std::string body(std::uint32_t request) const;
  // Returns the JSON body of a request with a prompt of `num_words` words, which differs for each `number` and from all prompts of the
  // workload.
  [[nodiscard]] std::string other_body(std::uint64_t number, std::uint32_t num_words, std::uint32_t output_tokens) const;
  // Returns a body with the lengths of a request of the workload and another content.
  [[nodiscard]] std::string warmup_body(std::uint32_t request) const;

 private:
  [[nodiscard]] std::string body_of(boost::json::value prompt, std::uint32_t output_tokens) const;
  [[nodiscard]] std::uint32_t num_words(std::uint32_t prompt_tokens) const;
  [[nodiscard]] std::string words_of(const WorkloadRequest& request, std::uint32_t index) const;

  const TrafficWorkload& workload_;
  BodyOptions options_;
  WordScale scale_;
  std::uint64_t seed_;
};

}  // namespace quire
