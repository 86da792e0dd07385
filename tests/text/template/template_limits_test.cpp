#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "text/template/render_template.h"
#include "text/template/value.h"

namespace quire {
namespace {

// A text of 640 bytes, lists and dicts of texts and numbers, and `deep`: a list in 100 lists.
std::string limits_context() {
  return R"({"e": "", "t": ")" + std::string(640, 't') + R"(", "u": ")" + std::string(64, 'u') +
         R"(", "l": [1, 2, 3, 4, 5], "d": {"a": 1, "b": 2}, "n": 7})";
}

// Returns the smallest limit with which the template renders. With one less it must fail as too large.
template <class T>
T smallest_limit(std::string_view source, T TemplateLimits::* limit, std::string_view context) {
  TemplateOptions options;
  T low = 0;
  T high = options.limits.*limit;
  while (low < high) {
    options.limits.*limit = low + (high - low) / 2;
    if (const auto text = render_template(source, context, options)) {
      high = options.limits.*limit;
    } else {
      EXPECT_EQ(text.error().code, ErrorCode::too_large) << source << text.error().message;
      low = options.limits.*limit + 1;
    }
  }
  return low;
}

// Returns the steps of the template in addition to the ones of an empty template.
std::uint64_t steps_of(std::string_view source) {
  const std::string context = limits_context();
  return smallest_limit(source, &TemplateLimits::max_steps, context) - smallest_limit("", &TemplateLimits::max_steps, context);
}

// Returns the bytes that the template allocates in addition to the ones of an empty template.
std::uint64_t bytes_of(std::string_view source) {
  const std::string context = limits_context();
  return smallest_limit(source, &TemplateLimits::max_allocated_bytes, context) -
         smallest_limit("", &TemplateLimits::max_allocated_bytes, context);
}

TEST(TemplateLimits, StatementsAndExpressionsCountAsSteps) {
  const std::vector<std::pair<const char*, std::uint64_t>> cases = {
      {"a", 1},
      {"{{ 1 }}", 1},
      {"{{ e }}", 2},
      {"{{ t }}", 12},
      {"{{ missing }}", 4},
      {"{{ d.a }}", 3},
      {"{{ d.a }}{{ d.a }}", 6},
      {"{% with %}{% endwith %}", 2},
      {"{% set a = e %}", 2},
      {"{% if e %}{% endif %}", 2},
      {"{% for x in l %}{% endfor %}", 13},
      {"{% for x in [] %}{% endfor %}", 5},
      {"{% for x in [] %}{% else %}{% endfor %}", 5},
      {"{% for x in l if true %}{% endfor %}", 14},
      {"{% for x in t %}{% endfor %}", 1283},
      {"{% for x in d %}{% endfor %}", 7},
      {"{% set a %}{{ t }}{% endset %}", 25},
      {"{% macro f() %}{% endmacro %}", 2},
      {"{% macro f() %}{% endmacro %}{{ f() }}", 8},
      {"{{ t ~ e }}", 35},
      {"{{ t + e }}", 26},
      {"{{ e + e }}", 6},
      {"{{ n + n }}", 5},
      {"{{ n * n }}", 5},
      {"{{ u * 10 }}", 35},
      {"{{ l * 2 }}", 36},
      {"{{ l + l }}", 37},
      {"{{ [] }}", 4},
      {"{{ [1, 2] }}", 8},
      {"{{ {} }}", 4},
      {"{{ {1: 2} }}", 7},
      {"{{ {t: 2} }}", 38},
      {"{{ {1: 2, 3: 4} | length }}", 6},
      {"{{ d['a'] }}", 4},
      {"{{ d[t] }}", 15},
      {"{{ l[0] }}", 3},
      {"{{ t[0] }}", 14},
      {"{{ t[1:3] }}", 14},
      {"{{ t[::2] }}", 664},
      {"{{ l[1:3] }}", 14},
      {"{{ t | length }}", 13},
      {"{{ l | length }}", 3},
      {"{{ n == n }}", 5},
      {"{{ t == t }}", 15},
      {"{{ t == e }}", 15},
      {"{{ l == l }}", 5},
      {"{{ l == [1, 2, 3, 4, 5] }}", 16},
      {"{{ l == [2, 2, 3, 4, 5] }}", 12},
      {"{{ d == d }}", 11},
      {"{{ n < n }}", 5},
      {"{{ t < t }}", 15},
      {"{{ l < [1, 2, 3, 4, 5] }}", 16},
      {"{{ n in l }}", 10},
      {"{{ e in t }}", 15},
      {"{{ 'a' in d }}", 5},
      {"{{ t in d }}", 16},
      {"{{ {t: t} }}", 59},
      {"{{ [t] }}", 27},
      {"{{ [n, n] | string }}", 12},
      {"{{ l | tojson }}", 10},
      {"{{ t | tojson }}", 35},
      {"{{ d | tojson }}", 7},
      {"{% set a = namespace() %}", 9},
      {"{{ n is odd }}", 5},
      {"{{ e.upper() }}", 7},
      {"{{ n if n else n }}", 4},
      {"{{ n and n }}", 4},
      {"{{ -n }}", 3},
      {"{{ not n }}", 3},
      {"{% for x in l %}{{ loop.index }}{% endfor %}", 28},
      {"{% for x in [1] recursive %}{{ loop([]) }}{% endfor %}", 16},
      {"{% filter upper %}{{ u }}{% endfilter %}", 11},
      {"{{ {1:1,2:2,3:3,4:4,5:5,6:6,7:7,8:8,9:9} == {1:1,2:2,3:3,4:4,5:5,6:6,7:7,8:8,9:9} }}", 115},
  };
  for (const auto& [source, steps] : cases) EXPECT_EQ(steps_of(source), steps) << source;
}

TEST(TemplateLimits, TextsListsAndDictsCountAsMemory) {
  using jinja::Dict;
  using jinja::List;
  using jinja::Value;
  const std::size_t entry = 2 * sizeof(Value) + sizeof(std::string);
  const std::vector<std::pair<const char*, std::uint64_t>> cases = {
      {"{{ t }}", 0},
      {"{{ t ~ e }}", 640},
      {"{{ t + u }}", 704},
      {"{{ u * 3 }}", 192},
      {"{{ [] }}", sizeof(List)},
      {"{{ [1, 2] }}", sizeof(List) + 2 * sizeof(Value)},
      {"{{ (1, 2, 3) }}", sizeof(List) + 3 * sizeof(Value)},
      {"{{ l + l }}", sizeof(List) + 10 * sizeof(Value)},
      {"{{ l * 3 }}", sizeof(List) + 15 * sizeof(Value)},
      {"{{ l[1:3] }}", sizeof(List) + 2 * sizeof(Value)},
      {"{{ t[1:11] }}", 10},
      {"{{ t[0] }}", 1},
      {"{{ t[::2] }}", 320},
      {"{{ {} }}", sizeof(Dict)},
      {"{{ {'a': 1} }}", sizeof(Dict) + entry + 2},
      {"{{ {t: 1} }}", sizeof(Dict) + entry + 641},
      {"{{ {1: 1} }}", sizeof(Dict) + entry + 32},
      {"{{ {(1, u): 1} }}", sizeof(List) + 2 * sizeof(Value) + sizeof(Dict) + entry + 1 + 12 + 32 + 12 + 65},
      {"{{ {(1, (2,)): 1} }}", 2 * sizeof(List) + 3 * sizeof(Value) + sizeof(Dict) + entry + 1 + 12 + 32 + 12 + 1 + 12 + 32},
      {"{% set a %}{{ t }}{% endset %}", 640},
      {"{% filter upper %}{{ u }}{% endfilter %}", 128},
      {"{% macro f() %}{{ u }}{% endmacro %}{{ f() }}", 64},
      {"{% for x in [1] recursive %}{{ loop([]) if x }}{{ u }}{% endfor %}", 2 * sizeof(List) + sizeof(Value)},
      {"{{ u | tojson }}", 66},
      {"{{ d.items() | list | length }}", 4 * sizeof(List) + 8 * sizeof(Value)},
      {"{{ [u] | string }}", sizeof(List) + sizeof(Value) + 68},
  };
  for (const auto& [source, bytes] : cases) EXPECT_EQ(bytes_of(source), bytes) << source;
}

TEST(TemplateLimits, TheOutputIsBoundedExactly) {
  TemplateOptions options;
  options.limits.max_output_bytes = 640;
  const std::string context = limits_context();
  for (const char* source : {"{{ t }}", "{{ t }}{{ e }}", "{{ t ~ e }}", "{{ t + e }}", "{{ u * 10 }}", "{{ u ~ t[64:] }}",
                             "{% set a %}{{ t }}{% endset %}{{ a }}", "{% macro f() %}{{ t }}{% endmacro %}{{ f() }}"})
    EXPECT_TRUE(render_template(source, context, options)) << source;
  for (const char* source : {"{{ t }}x", "x{{ t }}", "{{ t }}{{ n }}", "{% if t ~ n %}{% endif %}", "{% if t + 'x' %}{% endif %}",
                             "{% set a %}{{ t }}x{% endset %}", "{% macro f() %}{{ t }}x{% endmacro %}{% if f() %}{% endif %}",
                             "{% if t | tojson %}{% endif %}", "{% if [t] | string %}{% endif %}", "{{ [t] }}", "{{ [t, 1, 2] }}"}) {
    const Error error = template_error(source, context, options);
    EXPECT_EQ(error.code, ErrorCode::too_large) << source;
    EXPECT_EQ(error.message, "line 1: a text is longer than 640 bytes") << source;
  }
  EXPECT_EQ(template_error("{{ u * 11 }}", context, options).message, "line 1: a repeated sequence is too long");
  EXPECT_TRUE(render_template("{{ ([1] * 640) | length }}", context, options));
  EXPECT_EQ(template_error("{{ ([1] * 641) | length }}", context, options).message, "line 1: a repeated sequence is too long");
}

TEST(TemplateLimits, ErrorsNameTheLimit) {
  TemplateOptions options;
  options.limits.max_steps = 100;
  EXPECT_EQ(template_error("\n{% for x in range(99) %}{% endfor %}", "{}", options).message, "line 2: rendering takes more than 100 steps");
  options = {};
  options.limits.max_allocated_bytes = 1000;
  EXPECT_EQ(template_error("\n{{ 'a' * 1001 }}", "{}", options).message,
            "line 2: rendering uses more than 1000 bytes for intermediate values");
  options = {};
  options.limits.max_depth = 3;
  EXPECT_EQ(template_error("a\n{{ - - -a }}", "{}", options).message, "line 2: rendering recurses too deeply");
}

TEST(TemplateLimits, RecursionIsBoundedExactly) {
  const std::vector<std::pair<const char*, std::uint32_t>> cases = {
      {"a", 1},
      {"{{ 1 }}", 1},
      {"{{ e }}", 2},
      {"{{ -n }}", 3},
      {"{{ -n }}{{ -n }}", 3},
      {"{{ n + -n }}", 4},
      {"{% if true %}a{% endif %}", 2},
      {"{% for x in l %}{{ x }}{% endfor %}", 3},
      {"{% with a = n %}{% if true %}a{% endif %}{% endwith %}", 3},
      {"{{ n | abs }}", 3},
      {"{% macro f() %}a{% endmacro %}{{ f() }}", 4},
      {"{% macro f(x) %}{{ f(x - 1) if x }}{% endmacro %}{{ f(0) }}", 6},
      {"{% macro f(x) %}{{ f(x - 1) if x }}{% endmacro %}{{ f(1) }}", 10},
      {"{% filter upper | lower %}{% endfilter %}", 3},
      {"{% filter upper %}a{% endfilter %}", 2},
  };
  for (const auto& [source, depth] : cases)
    EXPECT_EQ(smallest_limit(source, &TemplateLimits::max_depth, limits_context()), depth) << source;
}

// Expects that the source made of `count` parts parses and renders, and that one more part is too large.
template <class Make>
void expect_most(int count, const std::string& message, const Make& make) {
  const auto text = render_template(make(count), "{}");
  EXPECT_TRUE(text) << make(1) << text.error().message;
  const Error error = template_error(make(count + 1), "{}");
  EXPECT_EQ(error.code, ErrorCode::too_large) << make(1);
  EXPECT_EQ(error.message, message) << make(1);
}

TEST(TemplateLimits, TheDepthOfExpressionsIsBoundedExactly) {
  const std::string message = "line 1: the expression is nested too deeply";
  expect_most(99, message, [](int n) { return "{{ " + repeated("(", n) + "1" + repeated(")", n) + " }}"; });
  expect_most(100, message, [](int n) { return "{{ " + repeated("[", n) + repeated("]", n) + " | length }}"; });
  expect_most(198, message, [](int n) { return "{{ " + repeated("not ", n) + "1 }}"; });
  expect_most(198, message, [](int n) { return "{{ " + repeated("- ", n) + "1 }}"; });
  for (const char* part : {"+1", "*1", "**1", " or 0", " and 1"})
    expect_most(199, message, [&](int n) { return "{{ 1" + repeated(part, n) + " }}"; });
  expect_most(199, message, [](int n) { return "{{ 1" + repeated("|string", n) + " }}"; });
  expect_most(198, message, [](int n) { return "{{ ''" + repeated(".x", n) + " if false }}"; });
  const auto deep = [](int n) { return "1" + repeated("+1", n); };
  for (const char* call : {"f(", "f(a=", "f(*", "f(**", "1|round(", "1 is in(", "f(1,1,", "f(a=1,b=", "[1,", "x[", "x[1:", "x[:", "x[::"})
    expect_most(198, message, [&](int n) {
      const std::string start = call;
      const char* end = start.find('[') != std::string::npos ? "]" : ")";
      return "{% macro q() %}{{ " + start + deep(n) + end + " }}{% endmacro %}";
    });
  expect_most(198, message, [&](int n) { return "{% macro q() %}{{ {1:" + deep(n) + "} }}{% endmacro %}"; });
  expect_most(197, message, [&](int n) { return "{% macro q() %}{{ -f(" + deep(n) + ") }}{% endmacro %}"; });
  expect_most(199, message, [](int n) { return "{% set " + repeated("(", n) + "a" + repeated(")", n) + " = 1 %}"; });
  EXPECT_TRUE(render_template(repeated("{{ (1) }}{{ not -1 }}{% set (a) = 1 %}", 300)));
}

TEST(TemplateLimits, TheDepthOfTagsIsBoundedExactly) {
  const std::string message = "line 1: the template's tags are nested too deeply";
  expect_most(199, message, [](int n) { return repeated("{% with %}", n) + repeated("{% endwith %}", n); });
  expect_most(199, message, [](int n) { return repeated("{% for a in [] %}", n) + repeated("{% endfor %}", n); });
  expect_most(199, message, [](int n) { return repeated("{% for a in [] %}{% else %}", n) + repeated("{% endfor %}", n); });
  expect_most(199, "line 1: too many elif", [](int n) { return repeated("{% if 1 %}", n) + repeated("{% endif %}", n); });
  expect_most(198, "line 1: too many elif", [](int n) { return "{% if 1 %}" + repeated("{% elif 1 %}", n) + "{% endif %}"; });
  EXPECT_TRUE(render_template(repeated("{% if 1 %}{% else %}{% endif %}{% for a in [] %}{% else %}{% endfor %}", 300)));
}

TEST(TemplateLimits, TheDepthOfValuesIsBoundedExactly) {
  const auto nested = [](int depth) { return "{\"x\": " + repeated("[", depth) + repeated("]", depth) + "}"; };
  EXPECT_TRUE(render_template("", nested(129)));
  const Error error = template_error("", nested(130));
  EXPECT_EQ(error.code, ErrorCode::too_large);
  EXPECT_EQ(error.message, "the conversation is nested too deeply");
  const auto objects = [](int depth) { return repeated("{\"x\":", depth) + "1" + repeated("}", depth); };
  EXPECT_TRUE(render_template("", objects(129)));
  EXPECT_FALSE(render_template("", objects(130)));
  // Puts x into lists until it has the given depth.
  const auto nest = [](int depth) {
    return "{% set a = namespace(x=[], y=[]) %}{% for i in range(" + std::to_string(depth - 1) +
           ") %}{% set a.x = [a.x] %}{% set a.y = [a.y] %}{% endfor %}";
  };
  for (const char* use : {"{{ a.x }}", "{{ a.x == a.y }}", "{{ a.x < a.y }}"}) {
    EXPECT_TRUE(render_template(nest(128) + use + use)) << use;
    const Error deeper = template_error(nest(129) + use);
    EXPECT_EQ(deeper.code, ErrorCode::too_large) << use;
    EXPECT_EQ(deeper.message, "line 1: a value is nested too deeply") << use;
  }
  EXPECT_TRUE(render_template(nest(129) + "{{ a.x | tojson }}{{ {1: 1} | tojson }}"));
  EXPECT_EQ(template_error(nest(130) + "{{ a.x | tojson }}").message, "line 1: a value is nested too deeply");
  EXPECT_TRUE(
      render_template("{{ [[1], [2]] }}{{ [[1]] == [[2]] }}{{ [[1]] < [[2]] }}{% for i in range(300) %}{{ [i] }}{{ [i] == [i] }}"
                      "{{ [i] < [i] }}{% endfor %}"));
}

TEST(TemplateLimits, TheSizeOfTupleKeysIsBoundedExactly) {
  const auto nest = [](int depth) {
    return "{% set n = namespace(s=()) %}{% for a in range(" + std::to_string(depth - 1) + ") %}{% set n.s = (n.s,) %}{% endfor %}";
  };
  EXPECT_EQ(*render_template(nest(64) + "{{ {n.s: 1}[n.s] }}{{ {(1, n.s[0]): 1} | length }}"), "11");
  EXPECT_EQ(template_error(nest(65) + "{{ {n.s: 1} }}").message, "line 1: unhashable type: 'tuple'");
  EXPECT_EQ(template_error(nest(64) + "{{ {(n.s, 1, ()): 1} }}").message, "line 1: unhashable type: 'tuple'");
  // A tuple of one text is charged 14 bytes more than the text.
  EXPECT_EQ(*render_template("{{ {('a' * 65522,): 1} | length }}"), "1");
  EXPECT_EQ(template_error("{{ {('a' * 65523,): 1} }}").message, "line 1: unhashable type: 'tuple'");
  EXPECT_EQ(*render_template("{{ {('a' * 65496, (),): 1} | length }}{{ {('a' * 99999): 1} | length }}"), "11");
}

TEST(TemplateLimits, CancellationIsCheckedEveryFewThousandSteps) {
  int calls = 0;
  const CancellationPoint count = [&] { ++calls; };
  TemplateOptions options;
  options.cancellation = &count;
  EXPECT_TRUE(render_template("{{ 1 }}", "{}", options));
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(render_template("{% for x in range(40960) %}{% endfor %}", "{}", options));
  EXPECT_GE(calls, 10);
  EXPECT_LE(calls, 50);
  options.limits.max_steps = 4096;
  calls = 0;
  EXPECT_FALSE(render_template("{% for x in range(40960) %}{% endfor %}", "{}", options));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace quire
