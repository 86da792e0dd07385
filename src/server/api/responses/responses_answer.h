#pragma once
// Writes answers of /v1/responses: whole answers and the events of streams.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "quire/text/tokenizer.h"
#include "server/answers/single_answer_writer.h"
#include "server/api/responses/responses_request.h"
#include "server/request/prompt_fingerprint.h"

namespace quire {

// Returns the JSON of `prompt_cache_diagnostics`: whether the prefix that the prompt shares with the compared prompt was cached, or the
// reason for the miss.
[[nodiscard]] std::string cache_diagnostics(const PromptComparison& compared, std::uint64_t num_cached_tokens);

class ResponseWriter final : public SingleAnswerWriter {
 public:
  // Receives the response to store.
  using StoreCallback = std::function<void(StoredResponse)>;

  // `head.id` begins with "resp_"; the ids of items are derived from it. `tokenizer` must outlive this object.
  ResponseWriter(AnswerHead head, bool is_stream, ResponseCall call, const Tokenizer& tokenizer, StoreCallback store_callback)
      : head_(std::move(head)),
        is_stream_(is_stream),
        call_(std::move(call)),
        tokenizer_(&tokenizer),
        store_callback_(std::move(store_callback)) {}

  void begin(std::string& events, const Usage& usage) override;
  void add(std::string& events, const AnswerPart& part) override;
  void end(std::string& events, const AnswerEnd& end) override;
  void fail(std::string& events, const Error& error) override;
  [[nodiscard]] std::string whole() const override { return whole_; }
  // Sets the result of comparing the prompt with an earlier prompt. Null if not requested.
  void set_comparison(std::shared_ptr<const PromptComparison> compared) { compared_ = std::move(compared); }

 private:
  enum class Kind : std::uint8_t { text, reasoning, call };
  struct Item {
    Kind kind = Kind::text;
    std::string id, call_id, name, text;
    std::string_view status = "in_progress";
    std::string logprobs{};  // of a text: the elements of its JSON array
    bool is_broken = false;  // an invalid call, whose text follows as another item
  };
  // `write(json)` writes the further fields.
  template <class Write>
  void event(std::string& events, std::string_view type, Write write);
  template <class Write>
  void item_event(std::string& events, std::string_view what, Write write);
  void response_event(std::string& events, std::string_view type, const std::string& response);
  void whole_item_event(std::string& events, std::string_view type);
  void part_event(std::string& events, std::string_view what);
  void open(std::string& events, Kind kind, std::string name = {}, std::uint32_t call = 0);
  void close(std::string& events, std::string_view status);
  void append_text(std::string& events, std::string_view text, const std::string& logprobs = {});
  void keep(const AnswerEnd& end) const;
  static void write_part(JsonWriter& json, const Item& item);
  static void write_item(JsonWriter& json, const Item& item);
  void write_output(JsonWriter& json) const;
  // `write(json)` writes completed_at, error, incomplete_details, output and usage.
  template <class Write>
  [[nodiscard]] std::string response_json(std::string_view status, Write write) const;

  AnswerHead head_;
  bool is_stream_;
  ResponseCall call_;
  const Tokenizer* tokenizer_;
  StoreCallback store_callback_;
  std::shared_ptr<const PromptComparison> compared_;
  std::uint64_t num_events_ = 0;
  bool has_begun_ = false;
  bool is_open_ = false;  // the last item is open
  std::vector<Item> items_;
  std::string whole_;
};

}  // namespace quire
