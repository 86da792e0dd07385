#pragma once
// JSON objects whose bytes come one by one, with Boost's parser underneath: it says what is JSON.
#include <boost/json/basic_parser.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_part.h"
#include "text/tool_calls/tool.h"

namespace quire {

// open: more must come. bad: no continuation makes it what was asked for.
enum class JsonState : std::uint8_t { open, whole, bad };

// Any object, at most 64 levels deep.
class JsonObject {
 public:
  JsonObject();
  ~JsonObject();
  JsonObject(JsonObject&&) noexcept;
  JsonObject& operator=(JsonObject&&) noexcept;

  // The first byte must be '{'. Nothing may come after `whole` or `bad`.
  JsonState push(char byte);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

// A call as an object: its "name", and as "arguments" or "parameters" an object, or a string that holds one, or null. In any order; other
// fields say nothing.
class JsonCall {
 public:
  // `tools`: then a call of any other tool, or a field that calls do not have, is `bad`.
  explicit JsonCall(const std::vector<Tool>* tools = nullptr);
  ~JsonCall();
  JsonCall(JsonCall&&) noexcept;
  JsonCall& operator=(JsonCall&&) noexcept;

  // The call begins as soon as its name and the first of its arguments are known.
  JsonState push(char byte, CallWriter& out);

 private:
  struct Parser;
  bool begin(CallWriter& out);
  bool end(CallWriter& out);

  std::unique_ptr<Parser> parser_;
  const std::vector<Tool>* tools_;
  bool begun_ = false;
  std::string early_;  // arguments that came before the name
};

}  // namespace quire
