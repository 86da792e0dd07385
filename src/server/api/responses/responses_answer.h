#pragma once
// Answers of /v1/responses: whole ones, and the events of a stream.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/text/tokenizer.h"
#include "server/answers/single_answer_writer.h"
#include "server/api/responses/responses_request.h"
#include "server/request/prompt_print.h"

namespace quire {

// `prompt_cache_diagnostics`: what became of the prefix that the prompt shares with the one it was compared with.
[[nodiscard]] std::string cache_diagnostics(const PromptComparison& compared, std::uint64_t num_cached_tokens);

class ResponseWriter final : public SingleAnswerWriter {
 public:
  // Takes what is to be kept.
  using Keep = std::function<void(StoredResponse)>;

  // `head.id` begins with "resp_"; ids of items are made of it. `tokenizer` must outlive this.
  ResponseWriter(AnswerHead head, bool is_stream, ResponseCall call, const Tokenizer& tokenizer, Keep keep)
      : head_(std::move(head)), is_stream_(is_stream), call_(std::move(call)), tokenizer_(&tokenizer), keep_(std::move(keep)) {}

  void begin(std::string& events, const Usage& usage) override;
  void add(std::string& events, const AnswerPart& part) override;
  void end(std::string& events, const AnswerEnd& end) override;
  void fail(std::string& events, const Error& error) override;
  [[nodiscard]] std::string whole() const override { return whole_; }
  // With another prompt; null: with none.
  void set_comparison(std::shared_ptr<const PromptComparison> compared) { compared_ = std::move(compared); }

 private:
  enum class Kind : std::uint8_t { text, thought, call };
  struct Item {
    Kind kind = Kind::text;
    std::string id, call_id, name, text;
    std::string_view status = "in_progress";
    std::string logprobs{};  // of text: what stands in the array
  };
  void event(std::string& events, std::string_view type, const std::string& fields);
  void item_event(std::string& events, std::string_view what, const std::string& fields);
  void open(std::string& events, Kind kind, std::string name = {}, std::uint32_t call = 0);
  void close(std::string& events, std::string_view status);
  void say(std::string& events, std::string_view text, const std::string& logprobs = {});
  void keep(const AnswerEnd& end) const;
  [[nodiscard]] static std::string part_json(const Item& item);
  [[nodiscard]] static std::string item_json(const Item& item);
  [[nodiscard]] std::string output_json() const;
  // `ending`: error, incomplete_details, output and usage.
  [[nodiscard]] std::string response_json(std::string_view status, const std::string& ending) const;

  AnswerHead head_;
  bool is_stream_;
  ResponseCall call_;
  const Tokenizer* tokenizer_;
  Keep keep_;
  std::shared_ptr<const PromptComparison> compared_;
  std::uint64_t num_events_ = 0;
  bool has_begun_ = false;
  bool is_open_ = false;  // the last item
  std::vector<Item> items_;
  std::string whole_;
};

}  // namespace quire
