#pragma once
// Assembles an answer from the parts that AnswerParser returns.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_parser.h"

namespace quire {

struct ReadCall {
  std::string name, arguments;
  friend bool operator==(const ReadCall&, const ReadCall&) = default;
};

struct ReadAnswer {
  std::string content, reasoning;
  std::vector<ReadCall> calls;  // finished calls
  std::size_t num_broken = 0;
  std::vector<ReadCall> cut;   // truncated within the call
  bool is_well_formed = true;  // each call begins, has arguments, and ends or breaks; content is at its stated position
  friend bool operator==(const ReadAnswer&, const ReadAnswer&) = default;
};

inline void take_part(ReadAnswer& answer, const AnswerPart& part, std::vector<ReadCall>& open) {
  const bool is_open = part.call < open.size();
  switch (part.kind) {
    case AnswerPart::Kind::content:
      answer.content += part.text;
      return;
    case AnswerPart::Kind::reasoning:
      answer.reasoning += part.text;
      return;
    case AnswerPart::Kind::call:
      answer.is_well_formed &= part.call == open.size();
      open.push_back({part.text, {}});
      return;
    case AnswerPart::Kind::arguments:
      answer.is_well_formed &= is_open && part.call + 1 == open.size();
      if (is_open) open[part.call].arguments += part.text;
      return;
    case AnswerPart::Kind::call_end:
      answer.is_well_formed &= is_open;
      if (is_open) answer.calls.push_back(open[part.call]);
      return;
    case AnswerPart::Kind::call_broken:
      answer.is_well_formed &= is_open;
      ++answer.num_broken;
      return;
    case AnswerPart::Kind::call_truncated:
      answer.is_well_formed &= is_open;
      if (is_open) answer.cut.push_back(open[part.call]);
      return;
  }
}

// `cuts` are the ascending positions at which the text is split. `is_truncated` is passed to AnswerParser::finish().
inline ReadAnswer read_answer(const CallFormat& format, const std::vector<Tool>& tools, std::string_view text,
                              const std::vector<std::size_t>& cuts = {}, AnswerParserOptions options = {}, bool is_truncated = false) {
  const auto parser = make_answer_parser(format, tools, options);
  ReadAnswer answer;
  std::vector<ReadCall> open;
  const auto take = [&] {
    for (const AnswerPart& part : parser->take_parts()) {
      take_part(answer, part, open);
      if (part.kind == AnswerPart::Kind::content) answer.is_well_formed &= text.substr(part.begin, part.end - part.begin) == part.text;
    }
  };
  std::size_t from = 0;
  for (const std::size_t cut : cuts) {
    parser->feed(text.substr(from, cut - from));
    take();
    from = cut;
  }
  parser->feed(text.substr(from));
  parser->finish(is_truncated);
  take();
  return answer;
}

}  // namespace quire
