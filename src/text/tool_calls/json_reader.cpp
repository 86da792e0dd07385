// Reads calls that are JSON objects, between delimiters or as the whole answer. AnswerParser uses a reader on one thread at a time.
#include <optional>
#include <string>

#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/json_object.h"

namespace quire {
namespace {

// Reads objects with separators between them, in a list or without brackets.
class JsonCalls {
 public:
  // JsonCall describes `tools`.
  explicit JsonCalls(const std::vector<Tool>* tools) : tools_(tools) {}

  void begin() {
    call_.reset();
    is_list_ = may_end_ = false;
    may_begin_ = true;
  }
  // Returns `complete` at the end of a list.
  ByteStatus push(char byte, CallWriter& out) {
    if (call_) return push_call(*call_, byte, out);
    if (is_blank(byte)) return ByteStatus::more;
    if (byte == '{' && (may_begin_ || may_end())) {
      may_begin_ = false;
      return push_call(call_.emplace(tools_), byte, out);
    }
    if (byte == '[' && may_begin_ && !may_end_ && !is_list_) {
      is_list_ = true;
      return ByteStatus::more;
    }
    if (byte == ']' && is_list_ && may_end_) return ByteStatus::complete;
    const bool separates = byte == ',' || (byte == ';' && !is_list_);
    if (!separates || !may_end_ || may_begin_) return ByteStatus::failed;
    may_begin_ = true;
    return ByteStatus::more;
  }
  // Returns whether an object has ended outside a list.
  [[nodiscard]] bool may_end() const { return may_end_ && !call_ && !is_list_; }

 private:
  ByteStatus push_call(JsonCall& call, char byte, CallWriter& out) {
    const JsonState state = call.push(byte, out);
    if (state == JsonState::open) return ByteStatus::more;
    call_.reset();
    may_end_ = true;
    return state == JsonState::whole ? ByteStatus::more : ByteStatus::failed;
  }

  const std::vector<Tool>* tools_;
  std::optional<JsonCall> call_;
  bool is_list_ = false;
  bool may_begin_ = true;  // a call may begin here
  bool may_end_ = false;   // a call has ended
};

class MarkedJsonReader final : public CallReader {
 public:
  explicit MarkedJsonReader(const CallFormat& format) : close_(format.close), calls_(nullptr) {}

  void begin() override {
    calls_.begin();
    closing_.clear();
    list_over_ = false;
  }
  ByteStatus push(char byte, CallWriter& out) override {
    const bool may_close = list_over_ || calls_.may_end();
    if (!may_close) return push_list(byte, out);
    if (closing_.empty() && is_blank(byte)) return ByteStatus::more;
    if (closing_.empty() && !close_.starts_with(byte)) return list_over_ ? ByteStatus::failed : push_list(byte, out);
    closing_ += byte;
    if (!close_.starts_with(closing_)) return ByteStatus::failed;
    return closing_ == close_ ? ByteStatus::complete : ByteStatus::more;
  }

 private:
  ByteStatus push_list(char byte, CallWriter& out) {
    const ByteStatus taken = calls_.push(byte, out);
    if (taken == ByteStatus::failed) return taken;
    if (taken == ByteStatus::complete) list_over_ = true;
    // Without a closing delimiter, the calls end after one list or after one object that is not in a list.
    if (close_.empty() && (list_over_ || calls_.may_end())) return ByteStatus::complete;
    return ByteStatus::more;
  }

  std::string_view close_;
  JsonCalls calls_;
  std::string closing_;
  bool list_over_ = false;
};

// Reads an answer that consists only of calls. Calls must name a known tool, because the answer may also be other JSON.
class BareJsonReader final : public CallReader {
 public:
  BareJsonReader(const CallFormat& format, const std::vector<Tool>& tools)
      : takes_lists_(format.style == CallStyle::plain), calls_(&tools) {}

  void begin() override { calls_.begin(); }
  ByteStatus push(char byte, CallWriter& out) override { return calls_.push(byte, out); }
  [[nodiscard]] bool opens_with(char byte) const override { return byte == '{' || (takes_lists_ && byte == '['); }

 private:
  bool takes_lists_;
  JsonCalls calls_;
};

// Reads the calls after [TOOL_CALLS]: a list of objects; or a name, optionally [CALL_ID] and an id, then [ARGS] and an object.
class MistralReader final : public CallReader {
 public:
  void begin() override {
    state_ = State::start;
    name_.clear();
    tag_.clear();
    calls_.begin();
  }

  ByteStatus push(char byte, CallWriter& out) override {
    if (state_ == State::json) return calls_.push(byte, out);
    if (state_ == State::start) {
      if (is_blank(byte)) return ByteStatus::more;
      state_ = byte == '[' || byte == '{' ? State::json : State::name;
    }
    if (state_ == State::json) return calls_.push(byte, out);
    if (state_ == State::arguments) return push_arguments(byte, out);
    return byte == '{' && tag_.empty() ? begin_call(byte, out) : push_name(byte);
  }

 private:
  // id: within the call's id, which is ignored. open: before the arguments.
  enum class State : std::uint8_t { start, json, name, id, open, arguments };

  ByteStatus push_name(char byte) {
    if (byte == '[' || !tag_.empty()) return push_tag(byte);
    if (is_blank(byte)) return name_.empty() ? ByteStatus::failed : ByteStatus::more;
    if (state_ == State::open) return ByteStatus::failed;
    if (state_ == State::name) name_ += byte;
    return name_.size() > kMaxNameBytes ? ByteStatus::failed : ByteStatus::more;
  }
  ByteStatus push_tag(char byte) {
    tag_ += byte;
    for (const std::string_view tag : {"[ARGS]", "[CALL_ID]"}) {
      if (tag_ == tag) state_ = tag == "[ARGS]" ? State::open : State::id;
      if (tag_ == tag) tag_.clear();
      if (tag.starts_with(tag_)) return ByteStatus::more;
    }
    return ByteStatus::failed;
  }
  ByteStatus begin_call(char byte, CallWriter& out) {
    if (name_.empty()) return ByteStatus::failed;
    state_ = State::arguments;
    object_ = JsonObject();
    out.begin(name_);
    return push_arguments(byte, out);
  }
  ByteStatus push_arguments(char byte, CallWriter& out) {
    const JsonState state = object_.push(byte);
    if (state == JsonState::bad) return ByteStatus::failed;
    out.arguments({&byte, 1});
    if (state == JsonState::open) return ByteStatus::more;
    out.end();
    return ByteStatus::complete;
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
