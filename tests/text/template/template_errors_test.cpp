#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "text/template/render_template.h"

namespace quire {
namespace {

using Cases = std::vector<std::pair<std::string, std::string>>;  // source, message

void expect_errors(ErrorCode code, const Cases& cases) {
  for (const auto& [source, message] : cases) {
    const Error error = template_error(source, R"({"b": 1, "s": "text", "l": [3, 4]})");
    EXPECT_EQ(error.message, message) << source;
    EXPECT_EQ(error.code, code) << source;
    EXPECT_EQ(error.field, "chat_template") << source;
  }
}

TEST(TemplateErrors, TokensNameTheirLine) {
  expect_errors(ErrorCode::invalid_argument, {
                                                 {"a\n{# b\n", "line 2: the comment has no end '#}'"},
                                                 {"a\n{% raw %}\nb", "line 2: 'raw' has no 'endraw'"},
                                                 {"a\n{{ 1\n\n+ 2", "line 2: the expression has no end '}}'"},
                                                 {"a\n{% if\n1", "line 2: the tag has no end '%}'"},
                                                 {"{{\n'a }}", "line 2: the string has no end"},
                                                 {"{{\n\n € }}", "line 3: unexpected character '€'"},
                                                 {"{{ 1 ! 2 }}", "line 1: unexpected character '!'"},
                                                 {"{# a\n#}{{ ) }}", "line 2: unexpected ')'"},
                                                 {"{% raw %}\n{% endraw %}{{ (] }}", "line 2: unexpected ']'"},
                                                 {"{{ 'a\nb' }}\n{{ n } }}", "line 3: unexpected '}'"},
                                                 {"\r\n\r\n\r{{ ) }}", "line 4: unexpected ')'"},
                                             });
  expect_errors(ErrorCode::unsupported, {{"\n{{ " + std::string(60, '9') + " }}", "line 2: the number is too large"}});
}

TEST(TemplateErrors, SyntaxNamesTheUnexpectedToken) {
  expect_errors(ErrorCode::invalid_argument, {
                                                 {"\n{% %}", "line 2: expected a tag's name, got end of statement block"},
                                                 {"{% 'a' %}", "line 1: expected a tag's name, got a string"},
                                                 {"{% end %}", "line 1: unexpected tag 'end'"},
                                                 {"{% endif %}", "line 1: unexpected tag 'endif'"},
                                                 {"{% elif 1 %}", "line 1: unexpected tag 'elif'"},
                                                 {"{% else %}", "line 1: unexpected tag 'else'"},
                                                 {"{{ }}", "line 1: expected an expression, got end of print statement"},
                                                 {"{{ + }}", "line 1: unexpected end of print statement"},
                                                 {"{{ 1 2 }}", "line 1: expected end of print statement, got '2'"},
                                                 {"{{ 1 'a' }}", "line 1: expected end of print statement, got a string"},
                                                 {"{% if 1 = 2 %}", "line 1: expected end of statement block, got '='"},
                                                 {"{% macro 1() %}", "line 1: expected a name, got '1'"},
                                                 {"{% macro f %}", "line 1: expected '(', got end of statement block"},
                                                 {"{% macro f(a=1, b) %}", "line 1: non-default argument follows default argument"},
                                                 {"{% macro f(a, a) %}", "line 1: duplicate argument 'a'"},
                                                 {"{% for a of b %}", "line 1: expected 'in', got 'of'"},
                                                 {"{% for loop in b %}", "line 1: can't assign to special loop variable in for-loop"},
                                                 {"{% set true = 1 %}", "line 1: cannot assign to true"},
                                                 {"{% call 1 %}", "line 1: expected call"},
                                                 {"{% block a %}{% endblock %}\n{% block a %}", "line 2: block 'a' defined twice"},
                                                 {"{% break %}", "line 1: 'break' outside loop"},
                                                 {"{{ x.+ }}", "line 1: expected a name or a number, got '+'"},
                                                 {"{{ x[] }}", "line 1: expected an expression, got ']'"},
                                                 {"{{ f(a=1, a=2) }}", "line 1: keyword argument repeated: a"},
                                                 {"{{ f(a=1, 2) }}", "line 1: invalid syntax for function call expression"},
                                                 {"{{ 1 is odd is odd is odd }}", "line 1: you cannot chain multiple tests with is"},
                                             });
}

TEST(TemplateErrors, MissingEndsNameTheTagAndItsLine) {
  expect_errors(ErrorCode::invalid_argument,
                {
                    {"\n{% if 1 %}\n", "line 2: unexpected end of template: the tag of line 2 has no 'endif'"},
                    {"\n{% if 1 %}\n{% elif 2 %}\n{{ 1 }}", "line 4: unexpected end of template: the tag of line 2 has no 'endif'"},
                    {"\n{% if 1 %}\n{% else %}\n{{ 1 }}", "line 4: unexpected end of template: the tag of line 2 has no 'endif'"},
                    {"{% for a in b %}\n{% if 1 %}{% endif %}", "line 2: unexpected end of template: the tag of line 1 has no 'endfor'"},
                    {"{% for a in b %}\n{% else %}", "line 2: unexpected end of template: the tag of line 1 has no 'endfor'"},
                    {"{% macro f() %}\n{% if 1 %}", "line 2: unexpected end of template: the tag of line 2 has no 'endif'"},
                    {"{% set a %}", "line 1: unexpected end of template: the tag of line 1 has no 'endset'"},
                    {"{% block a %}", "line 1: unexpected end of template: the tag of line 1 has no 'endblock'"},
                });
}

TEST(TemplateErrors, UnsupportedConstructsAreNamed) {
  expect_errors(ErrorCode::unsupported,
                {
                    {"\n{% include 'a' %}", "line 2: tag 'include' is not supported"},
                    {"{% raw +%}{% endraw %}", "line 1: tag 'raw' is not supported"},
                    {"{% raw x %}{% endraw %}", "line 1: tag 'raw' is not supported"},
                    {"{% rawx %}{% endraw %}", "line 1: tag 'rawx' is not supported"},
                    {"{% print 1, 2 %}", "line 1: tag 'print' with several values is not supported"},
                    {"{% block a required %}", "line 1: a required block is not supported"},
                    {"{{ x[1, 2] }}", "line 1: a subscript with several parts is not supported"},
                    {"{{ namespace() }}", "line 1: printing a Namespace is not supported"},
                    {"{{ [range] }}", "line 1: printing a function is not supported"},
                    {"{{ range(2) }}", "line 1: printing a range is not supported"},
                    {"{{ [{}.keys()] }}", "line 1: printing a dict_keys is not supported"},
                    {"{{ (-8) ** 0.5 }}", "line 1: a complex number is not supported"},
                    {"{{ ('a' | safe) % 1 }}", "line 1: '%' on a safe string is not supported"},
                    {"{{ 's'.encode }}", "line 1: attribute 'encode' of 'str' objects is not supported"},
                    {"{{ {}['fromkeys'] }}", "line 1: attribute 'fromkeys' of 'dict' objects is not supported"},
                    {"{{ (1).real }}", "line 1: attribute 'real' of 'int' objects is not supported"},
                    {"{{ (1.5).hex }}", "line 1: attribute 'hex' of 'float' objects is not supported"},
                    {"{{ range(2).start }}", "line 1: attribute 'start' of 'range' objects is not supported"},
                    {"{% for x in l %}\n{{ loop.cycle }}{% endfor %}", "line 2: 'loop.cycle' without a call is not supported"},
                    {"{% for x in l %}{{ loop.changed }}{% endfor %}", "line 1: 'loop.changed' without a call is not supported"},
                    {"{% set n = namespace() %}{% for x in l %}{% set n.l = loop %}{% endfor %}\n{{ n.l.index }}",
                     "line 2: 'loop' after its loop has ended is not supported"},
                });
}

TEST(TemplateErrors, UnknownNamesFailWhereTheyAreReached) {
  expect_errors(ErrorCode::unsupported, {
                                            {"\n{{ b | foo }}\n{{ b | bar }}", "line 2: filter 'foo' is not supported"},
                                            {"\n{{ b is foo }}\n{{ b | bar }}", "line 2: test 'foo' is not supported"},
                                            {"{{ b | foo.bar }}", "line 1: filter 'foo.bar' is not supported"},
                                            {"{% if b %}{{ b | foo }}{% endif %}{{ b | bar }}", "line 1: filter 'bar' is not supported"},
                                            {"{{ b | foo }}{% if b %}{{ b | bar }}{% endif %}", "line 1: filter 'foo' is not supported"},
                                            {"{{ b | foo ~ (1 if b else 2) }}", "line 1: filter 'foo' is not supported"},
                                            {"{% if b %}\n{{ b | foo }}{% endif %}", "line 2: filter 'foo' is not supported"},
                                            {"{% if b %}\n{{ b is foo }}{% endif %}", "line 2: test 'foo' is not supported"},
                                            {"{% set a | foo %}{% endset %}", "line 1: filter 'foo' is not supported"},
                                            {"{% filter foo %}{% endfilter %}", "line 1: filter 'foo' is not supported"},
                                            {"{{ (b | foo) if b else 1 }}", "line 1: filter 'foo' is not supported"},
                                        });
  EXPECT_EQ(template_error("{{ (b | foo) if b else 1 }}{% if b %}{{ b | foo }}{% elif b is foo %}{% endif %}", R"({"b": 0})").message,
            "line 1: test 'foo' is not supported");
  EXPECT_EQ(*render_template("{{ (b | foo) if b else 1 }}{% if b %}{{ b | foo }}{% else %}2{% endif %}", R"({"b": 0})"), "12");
}

TEST(TemplateErrors, ValuesAreNamedWithTheLineOfTheOperation) {
  expect_errors(
      ErrorCode::invalid_argument,
      {
          {"\n{{ missing.x }}", "line 2: 'missing' is undefined"},
          {"\n{{ s.zz.x }}", "line 2: 'str object' has no attribute 'zz'"},
          {"{{ none.zz.x }}", "line 1: 'None' has no attribute 'zz'"},
          {"{{ l[9].x }}", "line 1: 'list object' has no attribute '9'"},
          {"{{ l['q'].x }}", "line 1: 'list object' has no attribute 'q'"},
          {"{{ s.__class__.x }}", "line 1: access to attribute '__class__' of 'str' object is unsafe"},
          {"{{ (1 if none).x }}", "line 1: the inline if-expression evaluated to false and no else section was defined"},
          {"{% macro f(a) %}\n{{ a.x }}{% endmacro %}\n\n{{ f() }}", "line 2: parameter 'a' was not provided"},
          {"{% macro f() %}{{ caller.x }}{% endmacro %}{{ f() }}", "line 1: No caller defined"},
          {"{% macro f(a) %}{% endmacro %}\n{{ f(1, 2) }}", "line 2: macro 'f' takes not more than 1 argument(s)"},
          {"{% macro f(a) %}{% endmacro %}\n{{ f(q=2) }}", "line 2: macro 'f' takes no keyword argument 'q'"},
          {"{{ s.center(\n\nnone) }}", "line 1: a method that fills up to a width: argument 'width' must be an integer, not NoneType"},
          {"{{ s.zz(\n\nb) }}", "line 1: 'str object' has no attribute 'zz'"},
          {"{{ b(\n\ns) }}", "line 1: 'int' object is not callable"},
          {"{{ -s }}", "line 1: bad operand type for unary -: 'str'"},
          {"{{ +s }}", "line 1: bad operand type for unary +: 'str'"},
          {"{{ s - b }}", "line 1: unsupported operand type(s) for -: 'str' and 'int'"},
          {"{{ s < b }}", "line 1: '<' not supported between instances of 'str' and 'int'"},
          {"{{ s > b }}", "line 1: '>' not supported between instances of 'int' and 'str'"},
          {"{{ s >= b }}", "line 1: '>=' not supported between instances of 'int' and 'str'"},
          {"{{ b in b }}", "line 1: argument of type 'int' is not iterable"},
          {"{{ b in s }}", "line 1: 'in <string>' requires string as left operand, not int"},
          {"{{ {l: 1} }}", "line 1: unhashable type: 'list'"},
          {"{% for x in b %}{% endfor %}", "line 1: 'int' object is not iterable"},
          {"{% set a, c = l + l %}", "line 1: cannot unpack 4 values into 2 names"},
          {"{% set b.c = 1 %}", "line 1: cannot assign attribute on non-namespace object"},
          {"{% for x in l %}{{ loop(l) }}{% endfor %}", "line 1: the loop must have the 'recursive' marker to be called recursively"},
          {"{% for x in l recursive %}{{ loop() }}{% endfor %}", "line 1: a recursive loop is called with one iterable"},
          {"{% for x in l %}{{ loop.zz.x }}{% endfor %}", "line 1: 'LoopContext object' has no attribute 'zz'"},
          {"{% for x in l %}{{ loop.previtem.x }}{% endfor %}", "line 1: there is no previous item"},
          {"{% for x in [1] %}{{ loop.nextitem.x }}{% endfor %}", "line 1: there is no next item"},
          {"{{ 1 / 0 }}", "line 1: division by zero"},
          {"{{ 1 % 0 }}", "line 1: integer division or modulo by zero"},
          {"{{ 1.0 / 0 }}", "line 1: float division by zero"},
          {"{{ 1.0 // 0 }}", "line 1: float floor division by zero"},
          {"{{ 2 ** 127 }}", "line 1: an integer is too large"},
          {"{{ 2 ** 126 * 2 }}", "line 1: an integer is too large"},
          {"{{ 2 ** 126 + 2 ** 126 }}", "line 1: an integer is too large"},
          {"{{ -(2 ** 126) - 2 ** 126 - 1 }}", "line 1: an integer is too large"},
          {"{{ b | length }}", "line 1: object of type 'int' has no len()"},
          {"{{ range(*b) }}", "line 1: 'int' object is not iterable"},
          {"{{ dict(**b) }}", "line 1: argument after ** must be a mapping"},
          {"{{ dict(**{1: 2}) }}", "line 1: keywords must be strings"},
          {"{{ dict(a=1, **{'a': 2}) }}", "line 1: a keyword argument is given twice"},
          {"{{ missing | tojson }}", "line 1: Object of type Undefined is not JSON serializable"},
          {"{{ {(1,): 2} | tojson }}", "line 1: keys must be str, int, float, bool or None, not tuple"},
          {"{{ b | tojson(indent=65) }}", "line 1: tojson: indent must be a string or a small integer"},
          {"{{ s[::0] }}", "line 1: slice step cannot be zero"},
          {"{{ s['a':] }}", "line 1: slice indices must be integers or None"},
          {"{{ b[1:] }}", "line 1: 'int' object is not subscriptable"},
          {"\n{{ [\n1,\nmissing.x] }}", "line 4: 'missing' is undefined"},
          {"{% filter length %}{% endfilter %}", "line 1: a filter block writes a string, not int"},
      });
}

TEST(TemplateErrors, LinesOfMacrosEndWithTheCall) {
  expect_errors(ErrorCode::invalid_argument,
                {{"{% macro f() %}\n\n{{ b }}{% endmacro %}{{ (f() ~ s).x(\nf(), 1) + 1 }}", "line 3: 'str object' has no attribute 'x'"}});
}

TEST(TemplateErrors, SayWhatToDo) {
  EXPECT_EQ(ChatTemplate::parse("{{").error().remedy, "use another template");
  EXPECT_EQ(template_error("{{ missing.x }}").remedy, "change the messages, or use another template");
  EXPECT_EQ(template_error("{{ raise_exception('roles must alternate') }}").to_string(),
            "messages: roles must alternate; change the messages, or use another template");
  TemplateOptions options;
  options.limits.max_steps = 100;
  EXPECT_EQ(template_error("{% for x in range(999) %}{% endfor %}", "{}", options).remedy,
            "send fewer or shorter messages, or use another template");
}

TEST(TemplateErrors, SourcesAreTextOfABoundedSize) {
  EXPECT_TRUE(ChatTemplate::parse(std::string(ChatTemplate::kMaxSourceBytes, 'a')));
  const auto parsed = ChatTemplate::parse(std::string(ChatTemplate::kMaxSourceBytes + 1, 'a'));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::too_large);
  EXPECT_EQ(parsed.error().message, "has 1048577 bytes, more than the maximum of 1048576");
  EXPECT_EQ(template_error("\xff").message, "is not valid UTF-8");
  EXPECT_EQ(template_error("x", "[]").message, "the context must be an object");
  EXPECT_EQ(template_error("x", "[]").field, "messages");
}

TEST(TemplateErrors, NewlinesOfOtherSystemsAreReplaced) {
  EXPECT_EQ(*render_template("a\r\nb\rc\r\n"), "a\nb\nc");
  EXPECT_EQ(*render_template("a\r"), "a");
  EXPECT_EQ(*render_template("\r\r\n\n"), "\n\n");
  EXPECT_EQ(*render_template("  {% if true %}\r\nx{% endif %}\r\ry"), "x\ny");
  EXPECT_EQ(*render_template("\n"), "");
  EXPECT_EQ(*render_template(""), "");
}

}  // namespace
}  // namespace quire
