// Calls that are JSON objects: between marks, or the whole answer.
// Used by AnswerParser, one thread at a time; states are in the classes.
#include <optional>
#include <string>

#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/json_object.h"

namespace quire {
namespace {

// Objects with separators between them, in a list or not.
class JsonCalls {
 public:
  // `tools`: as of JsonCall.
  explicit JsonCalls(const std::vector<Tool>* tools) : tools_(tools) {}

  void begin() {
    call_.reset();
    is_list_ = may_end_ = false;
    may_begin_ = true;
  }
  // Over at the end of a list.
  Taken push(char byte, CallWriter& out) {
    if (call_) return push_call(*call_, byte, out);
    if (is_blank(byte)) return Taken::more;
    if (byte == '{' && (may_begin_ || may_end())) {
      may_begin_ = false;
      return push_call(call_.emplace(tools_), byte, out);
    }
    if (byte == '[' && may_begin_ && !may_end_ && !is_list_) {
      is_list_ = true;
      return Taken::more;
    }
    if (byte == ']' && is_list_ && may_end_) return Taken::over;
    const bool separates = byte == ',' || (byte == ';' && !is_list_);
    if (!separates || !may_end_ || may_begin_) return Taken::failed;
    may_begin_ = true;
    return Taken::more;
  }
  // Not in a list, and behind an object.
  [[nodiscard]] bool may_end() const { return may_end_ && !call_ && !is_list_; }

 private:
  Taken push_call(JsonCall& call, char byte, CallWriter& out) {
    const JsonState state = call.push(byte, out);
    if (state == JsonState::open) return Taken::more;
    call_.reset();
    may_end_ = true;
    return state == JsonState::whole ? Taken::more : Taken::failed;
  }

  const std::vector<Tool>* tools_;
  std::optional<JsonCall> call_;
  bool is_list_ = false;
  bool may_begin_ = true;  // a call
  bool may_end_ = false;   // there has been one
};

class MarkedJsonReader final : public CallReader {
 public:
  explicit MarkedJsonReader(const CallFormat& format) : close_(format.close), calls_(nullptr) {}

  void begin() override {
    calls_.begin();
    closing_.clear();
    list_over_ = false;
  }
  Taken push(char byte, CallWriter& out) override {
    const bool may_close = list_over_ || calls_.may_end();
    if (!may_close) return push_list(byte, out);
    if (closing_.empty() && is_blank(byte)) return Taken::more;
    if (closing_.empty() && !close_.starts_with(byte)) return list_over_ ? Taken::failed : push_list(byte, out);
    closing_ += byte;
    if (!close_.starts_with(closing_)) return Taken::failed;
    return closing_ == close_ ? Taken::over : Taken::more;
  }

 private:
  Taken push_list(char byte, CallWriter& out) {
    const Taken taken = calls_.push(byte, out);
    if (taken == Taken::failed) return taken;
    if (taken == Taken::over) list_over_ = true;
    // Without a mark behind them, calls that are no list are over as well.
    if (close_.empty() && (list_over_ || calls_.may_end())) return Taken::over;
    return Taken::more;
  }

  std::string_view close_;
  JsonCalls calls_;
  std::string closing_;
  bool list_over_ = false;
};

// The answer is nothing but calls; of known tools, because it may be any other JSON.
class BareJsonReader final : public CallReader {
 public:
  BareJsonReader(const CallFormat& format, const std::vector<Tool>& tools)
      : takes_lists_(format.style == CallStyle::plain), calls_(&tools) {}

  void begin() override { calls_.begin(); }
  Taken push(char byte, CallWriter& out) override { return calls_.push(byte, out); }
  [[nodiscard]] bool opens_with(char byte) const override { return byte == '{' || (takes_lists_ && byte == '['); }

 private:
  bool takes_lists_;
  JsonCalls calls_;
};

// [TOOL_CALLS] and a list of objects, or a name, perhaps [CALL_ID] with one, [ARGS] and an object.
class MistralReader final : public CallReader {
 public:
  void begin() override {
    state_ = State::start;
    name_.clear();
    tag_.clear();
    calls_.begin();
  }

  Taken push(char byte, CallWriter& out) override {
    if (state_ == State::json) return calls_.push(byte, out);
    if (state_ == State::start) {
      if (is_blank(byte)) return Taken::more;
      state_ = byte == '[' || byte == '{' ? State::json : State::name;
    }
    if (state_ == State::json) return calls_.push(byte, out);
    if (state_ == State::arguments) return push_arguments(byte, out);
    return byte == '{' && tag_.empty() ? begin_call(byte, out) : push_name(byte);
  }

 private:
  // id: of the call, which says nothing. open: the arguments come next.
  enum class State : std::uint8_t { start, json, name, id, open, arguments };

  Taken push_name(char byte) {
    if (byte == '[' || !tag_.empty()) return push_tag(byte);
    if (is_blank(byte)) return name_.empty() ? Taken::failed : Taken::more;
    if (state_ == State::open) return Taken::failed;
    if (state_ == State::name) name_ += byte;
    return name_.size() > kMaxNameBytes ? Taken::failed : Taken::more;
  }
  Taken push_tag(char byte) {
    tag_ += byte;
    for (const std::string_view tag : {"[ARGS]", "[CALL_ID]"}) {
      if (tag_ == tag) state_ = tag == "[ARGS]" ? State::open : State::id;
      if (tag_ == tag) tag_.clear();
      if (tag.starts_with(tag_)) return Taken::more;
    }
    return Taken::failed;
  }
  Taken begin_call(char byte, CallWriter& out) {
    if (name_.empty()) return Taken::failed;
    state_ = State::arguments;
    object_ = JsonObject();
    out.begin(name_);
    return push_arguments(byte, out);
  }
  Taken push_arguments(char byte, CallWriter& out) {
    const JsonState state = object_.push(byte);
    if (state == JsonState::bad) return Taken::failed;
    out.arguments({&byte, 1});
    if (state == JsonState::open) return Taken::more;
    out.end();
    return Taken::over;
  }

  static constexpr std::size_t kMaxNameBytes = 256;
  State state_ = State::start;
  std::string name_, tag_;
  JsonCalls calls_{nullptr};
  JsonObject object_;
};

}  // namespace

std::unique_ptr<CallReader> make_json_reader(const CallFormat& format, const std::vector<Tool>& tools) {
  if (format.style == CallStyle::marked) return std::make_unique<MarkedJsonReader>(format);
  return std::make_unique<BareJsonReader>(format, tools);
}

std::unique_ptr<CallReader> make_mistral_reader() {
  return std::make_unique<MistralReader>();
}

}  // namespace quire
