// Chat templates for folders that have tekken.json and no chat template. They render messages, tools, calls and results as the instruct
// tokenizers of mistral-common do. Called once per model, when its headers are read.
#include <string>

#include "format/tokenizer_hf.h"

namespace quire::hf {
namespace {

// Tools are rendered before the last user message; in version 13 before the first user message.
constexpr const char* kFindLast = "{%- if message.role == 'user' %}{% set place.tools = loop.index0 %}{% endif %}";
constexpr const char* kFindFirst = "{%- if message.role == 'user' and place.tools < 0 %}{% set place.tools = loop.index0 %}{% endif %}";

constexpr const char* kBegin = R"({%- macro text_of(content) %}
{%- if content is string %}{{ content }}
{%- elif content %}{% for part in content if part.type == 'text' %}{{ part.text }}{% endfor %}
{%- endif %}
{%- endmacro %}
{%- macro json_of(value) %}{{ value if value is string else value | tojson }}{% endmacro %}
{%- set place = namespace(tools=-1) %}
{%- for message in messages %})";

constexpr const char* kMiddle = R"({% endfor %}
{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}{{ '[SYSTEM_PROMPT]' + text_of(message.content) + '[/SYSTEM_PROMPT]' }}
{%- elif message.role == 'user' %}
{%- if tools and loop.index0 == place.tools %}{{ '[AVAILABLE_TOOLS][' }}
{%- for tool in tools %}{{ '{"type": "function", "function": {"name": ' + tool.function.name | tojson + ', "description": '
      + (tool.function.description or '') | tojson + ', "parameters": ' + (tool.function.parameters or {}) | tojson + '}}' }}
{%- if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ '][/AVAILABLE_TOOLS]' }}
{%- endif %}{{ '[INST]' + text_of(message.content) + '[/INST]' }}
{%- elif message.role == 'assistant' %}{{ text_of(message.content).rstrip(' ') }}
{%- if message.tool_calls %})";

constexpr const char* kCallsAsList = R"({{ '[TOOL_CALLS][' }}
{%- for call in message.tool_calls %}{{ '{"name": ' + call.function.name | tojson + ', "arguments": ' + json_of(call.function.arguments) }}
{%- if call.id %}{{ ', "id": ' + call.id | tojson }}{% endif %}{{ '}' }}{% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ']' }})";
constexpr const char* kCallsWithIds = R"({% for call in message.tool_calls %}{{ '[TOOL_CALLS]' + call.function.name }}
{%- if call.id %}{{ '[CALL_ID]' + call.id }}{% endif %}{{ '[ARGS]' + json_of(call.function.arguments) }}{% endfor %})";
constexpr const char* kCalls =
    R"({% for call in message.tool_calls %}{{ '[TOOL_CALLS]' + call.function.name + '[ARGS]' + json_of(call.function.arguments) }}{% endfor %})";

constexpr const char* kEnd = R"({% endif %}{{ eos_token }}
{%- elif message.role == 'tool' %}{{ '[TOOL_RESULTS]' + RESULT_ID + text_of(message.content) + '[/TOOL_RESULTS]' }}
{%- else %}{{ raise_exception('role: ' + message.role + ' is unknown. Use system, user, assistant or tool.') }}
{%- endif %}
{%- endfor %})";

std::string end_with(const std::string& result_id) {
  std::string end = kEnd;
  constexpr std::string_view kPlace = "RESULT_ID + ";
  end.replace(end.find(kPlace), kPlace.size(), result_id);
  return end;
}

}  // namespace

std::string tekken_template(std::string_view version) {
  const std::string with_id = "(message.tool_call_id or '') + '[TOOL_CONTENT]' + ";
  if (version == "v7") return std::string(kBegin) + kFindLast + kMiddle + kCallsAsList + end_with(with_id);
  if (version == "v11") return std::string(kBegin) + kFindLast + kMiddle + kCallsWithIds + end_with(with_id);
  if (version == "v13") return std::string(kBegin) + kFindFirst + kMiddle + kCalls + end_with("");
  return {};
}

}  // namespace quire::hf
