#include "quire/text/chat_template.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>

namespace quire {
namespace {

Result<std::string> render(std::string_view source, std::string_view context = "{}", const TemplateOptions& options = {}) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed) return std::unexpected(parsed.error());
  return parsed->render(boost::json::parse(context), options);
}

std::string text_of(std::string_view source, std::string_view context = "{}") {
  const auto text = render(source, context);
  return text ? *text : "error: " + text.error().message;
}

Error error_of(std::string_view source, std::string_view context = "{}", const TemplateOptions& options = {}) {
  const auto text = render(source, context, options);
  EXPECT_FALSE(text.has_value()) << *text;
  return text ? Error{} : text.error();
}

TEST(ChatTemplate, RendersMessages) {
  EXPECT_EQ(text_of("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}\n{% endfor %}"
                    "{% if add_generation_prompt %}<|assistant|>{% endif %}",
                    R"({"bos_token": "<s>", "add_generation_prompt": true,
                        "messages": [{"role": "user", "content": " hi "}, {"role": "assistant", "content": "ho"}]})"),
            "<s><|user|>hi\n<|assistant|>ho\n<|assistant|>");
}

TEST(ChatTemplate, TrimsBlocksAsTransformersDoes) {
  EXPECT_EQ(text_of("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(text_of("a \n {%- if true -%} \n b {%+ endif %} c"), "ab  c");
  EXPECT_EQ(text_of("{% raw %}{{ x }}{% endraw %}{# gone #}"), "{{ x }}");
}

TEST(ChatTemplate, PrintsValuesAsPython) {
  EXPECT_EQ(text_of("{{ [1, 'it\\'s', none, true, 1.0, 1e16, {'k': (1,)}] }}"), "[1, \"it's\", None, True, 1.0, 1e+16, {'k': (1,)}]");
  EXPECT_EQ(text_of("{{ 7 // -2 }} {{ -7 % 3 }} {{ 2 ** -1 }} {{ 0.1 + 0.2 }}"), "-4 2 0.5 0.30000000000000004");
}

TEST(ChatTemplate, WritesJsonAsPython) {
  EXPECT_EQ(text_of("{{ x | tojson }}", R"({"x": {"b": "é<\u0001", "a": [1.0, 18446744073709551615, null]}})"),
            "{\"b\": \"é<\\u0001\", \"a\": [1.0, 18446744073709551615, null]}");
  EXPECT_EQ(text_of("{{ {'a': [], 'b': [1]} | tojson(indent=2) }}"), "{\n  \"a\": [],\n  \"b\": [\n    1\n  ]\n}");
}

TEST(ChatTemplate, CountsCodePoints) {
  EXPECT_EQ(text_of("{{ 'äöü'[1:] }}{{ 'äöü' | length }}{{ 'äöü'[-1] }}{{ 'äöü'[::-1] }}"), "öü3üüöä");
}

TEST(ChatTemplate, KeepsLoopVariablesInside) {
  EXPECT_EQ(text_of("{% set x = 0 %}{% set ns = namespace(x=0) %}{% for i in range(3) %}{% set x = x + i %}{% set ns.x = ns.x + i %}"
                    "{% endfor %}{{ x }}{{ ns.x }}"),
            "03");
  EXPECT_EQ(text_of("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"),
            "02");
}

TEST(ChatTemplate, CallsMacrosAndCallers) {
  EXPECT_EQ(text_of("{% macro f(a, b='x') %}{{ a }}{{ b }}{{ caller() if caller }}{% endmacro %}{{ f(1) }}{{ f(b=2, a=3) }}"
                    "{% call f(4) %}!{% endcall %}"),
            "1x324x!");
}

TEST(ChatTemplate, RaiseExceptionSetsTheMessage) {
  const Error error = error_of("{{ raise_exception('roles must alternate') }}");
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(error.field, "messages");
  EXPECT_EQ(error.message, "roles must alternate");
}

TEST(ChatTemplate, RefusesUnknownNamesWithTheirLine) {
  EXPECT_EQ(error_of("\n\n{{ x | foo }}").message, "line 3: filter 'foo' is not supported");
  EXPECT_EQ(error_of("{{ x is foo }}").message, "line 1: test 'foo' is not supported");
  EXPECT_EQ(error_of("a\n{% include 'b' %}").message, "line 2: tag 'include' is not supported");
  EXPECT_EQ(error_of("{{ 'x'.foo() }}").message, "line 1: 'str object' has no attribute 'foo'");
  EXPECT_EQ(error_of("{{ x | foo }}").code, ErrorCode::unsupported);
}

TEST(ChatTemplate, BoundsTheOutputOfWidthsAndCounts) {
  for (const char* source :
       {"{{ '{:99999999}'.format(1) }}", "{{ '{:>{}}'.format('x', 1999999999) }}", "{{ '%99999999d' % 1 }}",
        "{{ '%*s' % (1999999999, 'x') }}", "{{ '%.99999999d' % 1 }}", "{{ '%.99999f' % 1.5 }}", "{{ '{:.99999e}'.format(1.5) }}",
        "{{ 'x'.ljust(2000000000) }}", "{{ 'x' | center(999999999) }}", "{{ '1'.zfill(999999999999) }}",
        "{{ '\\t'.expandtabs(999999999) }}", "{{ [1] | batch(99999999, 0) | list }}", "{{ [1] | slice(99999999) | list }}",
        "{{ ('ab ' * 5000000) | wordwrap(1) }}", "{{ ('<' * 1000000) | striptags }}"})
    EXPECT_FALSE(render(source, "{}").has_value()) << source;
}

TEST(ChatTemplate, RefusesBrokenSyntax) {
  for (const char* source : {"{{ x", "{% if x %}", "{% endif %}", "{{ (x }}", "{% for x %}{% endfor %}", "{{ 'a }}", "{# x", "{% raw %}x",
                             "{% break %}", "{{ }}", "{{ x. }}", "{{ x[ }}", "{% set %}", "{{ a b }}", "{% macro %}", "\xff"}) {
    EXPECT_EQ(error_of(source).code, ErrorCode::invalid_argument) << source;
    EXPECT_EQ(error_of(source).field, "chat_template") << source;
  }
}

TEST(ChatTemplate, FailsOnUndefinedValuesLikeJinja) {
  EXPECT_EQ(text_of("[{{ missing }}{{ missing | length }}]"), "[0]");
  EXPECT_EQ(error_of("\n{{ missing.x }}").message, "line 2: 'missing' is undefined");
  EXPECT_EQ(error_of("{{ {}.a.b }}").message, "line 1: 'dict object' has no attribute 'a'");
}

TEST(ChatTemplate, ForbidsChangingLists) {
  EXPECT_EQ(error_of("{{ l.append(1) }}", R"({"l": []})").message, "line 1: access to attribute 'append' of 'list' object is unsafe");
}

TEST(ChatTemplate, ReadsTheTimeFromItsOptions) {
  TemplateOptions options;
  options.now_s = 1'764'598'325;
  EXPECT_EQ(*render("{{ strftime_now('%d %b %Y %H:%M') }}", "{}", options), "01 Dec 2025 14:12");
  EXPECT_EQ(text_of("{{ strftime_now is defined }}"), "False");
  EXPECT_EQ(error_of("{{ strftime_now('%9999d') }}", "{}", options).code, ErrorCode::unsupported);
}

TEST(ChatTemplate, StopsTemplatesOverTheirLimits) {
  TemplateOptions options;
  options.limits.max_steps = 100'000;
  options.limits.max_output_bytes = 10'000;
  for (const char* source :
       {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set n = namespace(s='ab') %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% for a in range(9999) %}0123456789{% endfor %}",
        "{% set n = namespace(s=[]) %}{% for a in range(999) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s }}",
        "{% set n = namespace(s=[1]) %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}"}) {
    EXPECT_EQ(error_of(source, "{}", options).code, ErrorCode::too_large) << source;
  }
  EXPECT_FALSE(render("{{ 'a' * 99999999999999 }}", "{}", options).has_value());
}

TEST(ChatTemplate, TuplesAreKeysUnlessTheyAreTooDeepOrTooLong) {
  EXPECT_EQ(text_of("{{ {(1, ('a', 2.0)): 3}[(1.0, ('a', 2))] }}"), "3");
  EXPECT_EQ(text_of("{{ [(1, 2), (1, 2), (2, 1)] | unique | list | length }}"), "2");
  const std::string deep = "{% set n = namespace(s=()) %}{% for a in range(50000) %}{% set n.s = (n.s,) %}{% endfor %}";
  const std::string wide = "{% set n = namespace(s=()) %}{% for a in range(60) %}{% set n.s = (n.s, n.s) %}{% endfor %}";
  for (const std::string& key : {deep, wide})
    for (const char* use : {"{{ {n.s: 1} }}", "{{ n.s in {} }}", "{{ {}.get(n.s) }}", "{{ [n.s] | unique | list }}"})
      EXPECT_EQ(error_of(key + use).message, "line 1: unhashable type: 'tuple'") << use;
}

TEST(ChatTemplate, WorkOnLongTextsCountsAsSteps) {
  TemplateOptions options;
  options.limits.max_steps = 50'000;
  const std::string text = "{% set s = ' ' * 9999 %}{% set d = {s: 1} %}";
  for (const char* use : {"{{ s.strip() }}", "{{ s.lstrip() }}", "{{ s in d }}", "{{ d[s] }}", "{{ d.get(s) }}", "{{ {s: 1} | length }}"}) {
    EXPECT_TRUE(render(text + use, "{}", options)) << use;
    EXPECT_EQ(error_of(text + "{% for a in range(999) %}" + use + "{% endfor %}", "{}", options).code, ErrorCode::too_large) << use;
  }
}

TEST(ChatTemplate, ContainersCountAsMemory) {
  TemplateOptions options;
  options.limits.max_allocated_bytes = 1 << 20;
  for (const char* use : {"[a, a, a]", "(a, a, a)", "{a: a}", "range(3)"}) {
    const auto loop = [&](const char* count) {
      return std::string("{% for a in range(") + count + ") %}{{ (" + use + ") | length }}{% endfor %}";
    };
    EXPECT_TRUE(render(loop("99"), "{}", options)) << use;
    EXPECT_EQ(error_of(loop("19999"), "{}", options).code, ErrorCode::too_large) << use;
  }
}

TEST(ChatTemplate, BoundsTheDepthOfTheSource) {
  std::string brackets(5'000, '(');
  EXPECT_EQ(error_of("{{ " + brackets + "1" + std::string(5'000, ')') + " }}").code, ErrorCode::too_large);
  std::string sum = "1";
  for (int i = 0; i < 5'000; ++i) sum += "+1";
  EXPECT_EQ(error_of("{{ " + sum + " }}").code, ErrorCode::too_large);
  std::string tags;
  for (int i = 0; i < 5'000; ++i) tags += "{% if 1 %}";
  EXPECT_EQ(error_of(tags).code, ErrorCode::too_large);
}

TEST(ChatTemplate, NamespacesMayContainThemselves) {
  EXPECT_EQ(text_of("{% set n = namespace() %}{% set n.n = n %}{{ n.n.n is defined }}"), "True");
}

TEST(ChatTemplate, RefusesAContextThatIsNotAnObject) {
  const auto parsed = ChatTemplate::parse("x");
  ASSERT_TRUE(parsed);
  EXPECT_FALSE(parsed->render(boost::json::value(1)));
}

}  // namespace
}  // namespace quire
