// Tests how clients request structured outputs, and the errors for schemas that cannot be enforced.
#include "server/request/structured_output.h"

#include <gtest/gtest.h>

#include "runtime/grammar/grammar_matcher.h"
#include "server/request/request_bodies.h"
#include "server/running_server.h"

namespace quire {
namespace {

using Kind = StructuredOutput::Kind;
using StructuredOutputApiTest = RunningServer;

Result<std::optional<OutputForm>> form_of(std::string_view body) {
  auto object = parse_object(body).value();
  ObjectReader reader(object);
  auto form = read_output_form(reader);
  if (const auto done = reader.finish(); !done) return std::unexpected(done.error());
  return form;
}

TEST(OutputForm, ReadsEveryRequestFormat) {
  const std::string schema = R"({"type":"array"})";
  const std::tuple<std::string, Kind, std::string, std::string> cases[] = {
      {R"("response_format":{"type":"json_object"})", Kind::json_schema, R"({"type":"object"})", "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":)" + schema + "}}", Kind::json_schema,
       schema, "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})", Kind::json_schema, R"({"type":"object"})",
       "response_format"},
      {R"("structured_outputs":{"json":)" + schema + "}", Kind::json_schema, schema, "structured_outputs.json"},
      {R"("structured_outputs":{"json":"{\"type\":\"array\"}"})", Kind::json_schema, schema, "structured_outputs.json"},
      {R"("structured_outputs":{"regex":"a+","choice":null})", Kind::regex, "a+", "structured_outputs.regex"},
      {R"("structured_outputs":{"choice":["a","b\"c"]})", Kind::lark, R"(start: "a" | "b\"c")", "structured_outputs.choice"},
      {R"("structured_outputs":{"grammar":"start: \"x\""})", Kind::lark, R"(start: "x")", "structured_outputs.grammar"},
      {R"("structured_outputs":{"json_object":true})", Kind::json_schema, R"({"type":"object"})", "structured_outputs.json_object"},
      {R"("guided_json":)" + schema, Kind::json_schema, schema, "guided_json"},
      {R"("guided_regex":"b")", Kind::regex, "b", "guided_regex"},
      {R"("guided_choice":["x"])", Kind::lark, R"(start: "x")", "guided_choice"},
      {R"("guided_grammar":"root ::= \"y\"")", Kind::lark, "start: \"y\"\n", "guided_grammar"},
  };
  for (const auto& [fields, kind, text, field] : cases) {
    const auto form = form_of("{" + fields + "}");
    ASSERT_TRUE(form.has_value() && form->has_value()) << fields << (form ? "" : form.error().to_string());
    EXPECT_EQ((*form)->wanted.kind, kind) << fields;
    EXPECT_EQ((*form)->wanted.text, text) << fields;
    EXPECT_EQ((*form)->field, field);
  }
  for (const char* fields : {R"({"response_format":{"type":"text"}})", "{}", R"({"response_format":null,"guided_json":null})",
                             R"({"structured_outputs":{"json":null}})", R"({"structured_outputs":{"json_object":false}})"})
    EXPECT_FALSE(form_of(fields).value().has_value()) << fields;
}

TEST(OutputForm, NamesTheInvalidField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"response_format":{"type":"xml"}})", "response_format.type"},
      {R"({"response_format":"json"})", "response_format"},
      {R"({"response_format":{"type":"json_schema"}})", "response_format.json_schema"},
      {R"({"response_format":{"type":"json_schema","json_schema":{"schema":3}}})", "response_format.json_schema.schema"},
      {R"({"response_format":{"type":"json_object"},"guided_regex":"a"})", "guided_regex"},
      {R"({"structured_outputs":{"json":{},"regex":"a"}})", "structured_outputs.regex"},
      {R"({"structured_outputs":{"json":{}},"guided_json":{}})", "guided_json"},
      {R"({"structured_outputs":{"structural_tag":"x"}})", "structured_outputs.structural_tag"},
      {R"({"structured_outputs":{"structural_tag":{"triggers":[]}}})", "structured_outputs.structural_tag.structures"},
      {R"({"structured_outputs":{"structural_tag":{"format":{}}}})", "structured_outputs.structural_tag.format"},
      {R"({"structured_outputs":{"structural_tag":{"triggers":["<a"],"structures":[{"begin":"<b>","schema":{},"end":""}]}}})",
       "structured_outputs.structural_tag.structures[0].begin"},
      {R"({"response_format":{"type":"structural_tag","triggers":["<a"],"structures":[{"begin":"<a>","end":""}]}})",
       "response_format.structures[0].schema"},
      {R"({"response_format":{"type":"structural_tag","triggers":["<a"],"structures":[{"begin":"<a>","schema":{}}]}})",
       "response_format.structures[0].end"},
      {R"({"structured_outputs":{"choice":[]}})", "structured_outputs.choice"},
      {R"({"structured_outputs":{"choice":[1]}})", "structured_outputs.choice"},
      {R"({"structured_outputs":{"choice":"a"}})", "structured_outputs.choice"},
      {R"({"guided_json":3})", "guided_json"},
      {R"({"guided_grammar":"root ::= ("})", "guided_grammar"},
      {R"({"structured_outputs":{"json":{},"disable_any_whitespace":"yes"}})", "structured_outputs.disable_any_whitespace"},
  };
  for (const auto& [body, field] : cases) {
    const auto form = form_of(body);
    ASSERT_FALSE(form.has_value()) << body;
    EXPECT_EQ(form.error().field, field) << form.error().to_string();
  }
}

TEST(StructuredOutputFields, SetTheAllowedWhitespace) {
  const auto spelling_of = [](const char* body) { return boost::json::serialize(form_of(body).value()->spelling); };
  EXPECT_EQ(spelling_of(R"({"structured_outputs":{"json":{}}})"), "{}");
  EXPECT_EQ(spelling_of(R"({"structured_outputs":{"json":{},"whitespace_pattern":"[ ]?"}})"), R"({"whitespace_pattern":"[ ]?"})");
  EXPECT_EQ(spelling_of(R"({"guided_json":{},"guided_whitespace_pattern":"\\n"})"), R"({"whitespace_pattern":"\\n"})");
  EXPECT_EQ(spelling_of(R"({"structured_outputs":{"json_object":true,"disable_any_whitespace":true}})"),
            R"({"whitespace_flexible":false,"item_separator":", ?","key_separator":": ?"})");
}

TEST(StructuredOutputFields, SetWhetherASchemaIsStrict) {
  const auto is_strict = [](const char* body) { return form_of(body).value()->is_strict; };
  EXPECT_FALSE(is_strict(R"({"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{}}}})"));
  EXPECT_TRUE(is_strict(R"({"response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":{}}}})"));
  EXPECT_TRUE(is_strict(R"({"guided_json":{}})"));
}

// Returns whether the grammar accepts the text, byte by byte.
bool takes(const GrammarCompiler& compiler, const std::string& lark, std::string_view text) {
  auto matcher = compiler.compile({.kind = Kind::lark, .text = lark});
  EXPECT_TRUE(matcher.has_value()) << lark << (matcher ? "" : matcher.error().to_string());
  if (!matcher) return false;
  for (const char c : text)
    if (!matcher->accept(static_cast<unsigned char>(c))) return false;
  std::vector<std::uint32_t> allowed((kFakeVocab + 31) / 32);
  return matcher->fill(allowed) && (allowed[kFakeEos / 32] >> kFakeEos % 32 & 1U) != 0;
}

TEST(Ebnf, ConvertsToAnEquivalentLarkGrammar) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  const auto compiler = GrammarCompiler::create(*byte_model().tokenizer, kFakeVocab).value();
  struct Case {
    const char *grammar, *taken, *refused;
  };
  const Case cases[] = {
      {"root ::= \"yes\" | \"no\"", "no", "maybe"},
      {"# a sum\nroot ::= term (\"+\" term)*\nterm ::= [0-9]+ # digits\n", "1+22+3", "1+"},
      {"root ::= Upper-Case ws? \"\\\"q\\\"\"\nUpper-Case ::= [A-Z]{2,3}\nws ::= [ \\t\\n]", "AB \"q\"", "A\"q\""},
      {"root ::= [^\"/\\]\\\\]* | \"\"", "a[b~&c", "a/b"},
      {"root ::= (\"a\" |\n  \"b\")\n  \"c\"", "bc", "b"},
      {"root ::= \"\\x41\\u0042\" .", "AB\n", "AB"},
      {"root ::= (| \"a\") \"b\"", "b", "a"},
      {"root ::= (\"a\" | | \"c\") \"d\"", "d", "c"},
      {"root::=x_y\nx_y::=\"1\"\nx-y::=\"2\"", "1", "2"},
      {"root ::= [\\x41-\\u0043\\]]", "]", "D"},
      {"root ::= [a-c/&~[]{2} # the end", "/[", "/"},
      {"root ::= \"a\"{1,} \"\\'\\/\"?", "aa'/", "'/"},
      {"root ::= [^a-c]+", "xyz", "xbz"},
  };
  for (const Case& c : cases) {
    const auto lark = lark_of_ebnf(c.grammar);
    ASSERT_TRUE(lark.has_value()) << lark.error().to_string();
    EXPECT_TRUE(takes(*compiler, *lark, c.taken)) << c.grammar << "\n" << *lark;
    EXPECT_FALSE(takes(*compiler, *lark, c.refused)) << c.grammar << "\n" << *lark;
  }
}

TEST(Ebnf, RefusesInvalidGrammarsAndNamesTheLine) {
  for (const char* grammar :
       {"", "x ::= \"a\"", "root ::= \"a", "root ::= [a", "root ::= (\"a\"", "root = \"a\"", "root ::= \"\\q\"", "root ::= a{x}",
        "root ::= \"\\x4\"", "root ::= $", "::=", "root ::= [a\\", "root ::= [\\x4", "root ::= a{1", "root ::= \"\\"}) {
    const auto lark = lark_of_ebnf(grammar);
    ASSERT_FALSE(lark.has_value()) << grammar << "\n" << *lark;
    EXPECT_NE(lark.error().message.find("line 1"), std::string::npos) << lark.error().message;
  }
  EXPECT_FALSE(lark_of_ebnf("root ::= " + std::string(100'000, '(')).has_value());
  const std::string_view cut = std::string_view("root ::= [a\\n]\n").substr(0, 12);
  EXPECT_NE(lark_of_ebnf(cut).error().message.find("a character class is not closed"), std::string::npos) << "it ends with a backslash";
  EXPECT_NE(lark_of_ebnf("root ::= \"a\"\n\nb ::= %").error().message.find("line 3"), std::string::npos);
}

TEST_F(StructuredOutputApiTest, PassesTheSchemaToTheEngine) {
  engine.answer_with("{}");
  start();
  EXPECT_EQ(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_object"}})").status,
            200U);
  ASSERT_TRUE(engine.at(0).request.structured_output.has_value());
  EXPECT_EQ(engine.at(0).request.structured_output->text, R"({"type":"object"})");
  post("/v1/completions", R"({"prompt":"a","guided_regex":"x"})");
  EXPECT_EQ(engine.at(1).request.structured_output->kind, Kind::regex);
}

TEST_F(StructuredOutputApiTest, StructuralTagAppliesSchemasAfterTheirBegin) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  engine.answer_with("x");
  start();
  const std::string tag = R"({"type": "structural_tag", "triggers": ["<f"], "structures": [
    {"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}, {"begin": "<f=b>", "schema": {"type": "boolean"}, "end": ""}]})";
  for (const std::string& fields : {R"("response_format": )" + tag, R"("structured_outputs": {"structural_tag": )" + tag + "}"}) {
    const std::size_t count = engine.num_submitted();
    const auto answer = post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}], )" + fields + "}");
    ASSERT_EQ(answer.status, 200U) << answer.body;
    const auto wanted = engine.at(count).request.structured_output;
    ASSERT_TRUE(wanted.has_value());
    const auto compiler = GrammarCompiler::create(*byte_model().tokenizer, kFakeVocab).value();
    for (const char* text : {"", "free <text>\n", "so <f=a>12</f> and <f=b>true and on"})
      EXPECT_TRUE(takes(*compiler, wanted->text, text)) << text;
    for (const char* text : {"<f=c>", "so <f=a>x", "<f=a>1</g>"}) EXPECT_FALSE(takes(*compiler, wanted->text, text)) << text;
  }
}

// The engine compiles a grammar after it has queued the request; a stream begins when the result is known.
TEST_F(StructuredOutputApiTest, RefusesAnUnsupportedSchemaAlsoForStreams) {
  start();
  for (const bool streams : {false, true}) {
    HttpClient client(port);
    client.send(HttpClient::post_text("/v1/completions", std::string(R"({"prompt":"a","n":2,"seed":1,"guided_json":{"not":{}},"stream":)") +
                                                             (streams ? "true}" : "false}")));
    const std::uint64_t first = streams ? 2 : 0;
    ASSERT_TRUE(engine.wait_submitted(first + 2));
    for (std::uint64_t i = 0; i < 2; ++i)
      engine.refuse(RequestId{first + i}, {ErrorCode::invalid_argument, "structured_output", "Unimplemented keys: [\"not\"]", ""});
    const auto answer = client.receive();
    EXPECT_EQ(answer.status, 400U);
    EXPECT_EQ(answer.json().at("error").at("param"), "guided_json");
    EXPECT_NE(answer.error_message().find("not"), std::string::npos);
  }
}

TEST_F(StructuredOutputApiTest, StreamsWithASchema) {
  engine.answer_with("{}");
  start();
  const auto answer = post("/v1/completions", R"({"prompt":"a","guided_json":{},"stream":true})");
  EXPECT_EQ(answer.status, 200U);
  EXPECT_NE(answer.body.find("data: [DONE]"), std::string::npos);
}

TEST(FormErrors, NameTheFieldTheProblemAndTheFix) {
  const BodyCase cases[] = {
      {R"("response_format": "json")", R"(response_format: must be an object, not string "json")"},
      {R"("response_format": {"type": "xml"})", R"(response_format.type: is "xml"; send text, json_object, json_schema or structural_tag)"},
      {R"("response_format": {"type": "json_schema"})", R"(response_format.json_schema: is missing; send {"name": ..., "schema": {...}})"},
      {R"("response_format": {"type": "json_schema", "json_schema": 3})",
       R"(response_format.json_schema: is missing; send {"name": ..., "schema": {...}})"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": 3}})",
       "response_format.json_schema.schema: must be an object, not integer 3"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"shema": {}}})",
       "response_format.json_schema.shema: is not a field of this request; did you mean 'schema'?"},
      {R"("response_format": {"type": "json_object", "schema": 3})", "response_format.schema: must be an object, not integer 3"},
      {R"("response_format": {"type": "json_object"}, "guided_regex": "a")",
       "guided_regex: cannot be combined with response_format; send only one of them"},
      {R"("structured_outputs": 3)", "structured_outputs: must be an object, not integer 3"},
      {R"("structured_outputs": {"json": {}, "regex": "a"})",
       "structured_outputs.regex: cannot be combined with structured_outputs.json; send only one of them"},
      {R"("structured_outputs": {"json": {}}, "guided_choice": ["a"])",
       "guided_choice: cannot be combined with structured_outputs.json; send only one of them"},
      {R"("response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"})",
       "structured_outputs: cannot be combined with response_format; send only one of them"},
      {R"("structured_outputs": {"choice": []})", "structured_outputs.choice: must be an array of 1 to 10000 strings, not array"},
      {R"("structured_outputs": {"choice": [1]})", "structured_outputs.choice: contains integer 1; send strings"},
      {R"("structured_outputs": {"disable_additional_properties": true})",
       R"(structured_outputs.disable_additional_properties: is not supported by this server, except as false; write )"
       R"("additionalProperties": false in the schema)"},
      {R"("guided_choice": 3)", "guided_choice: must be an array of 1 to 10000 strings, not integer 3"},
      {R"("guided_choice": )" + json_list_of(10'001, "\"a\""), "guided_choice: must be an array of 1 to 10000 strings, not array"},
      {R"("guided_choice": )" + json_list_of(10'000, "\"a\""), "accepted"},
      {R"("guided_json": 3)", "guided_json: must be a JSON schema, not integer 3"},
      {R"("guided_json": true)", "accepted"},
      {R"("guided_grammar": "root ::= (")", "guided_grammar: line 1: a bracket is not closed; fix the grammar"},
      {R"("format": "xml")", R"(format: is string "xml"; send "json" or a JSON schema)"},
      {R"("structured_outputs": {"structural_tag": "{"})", "structured_outputs.structural_tag: is not valid JSON: incomplete JSON"},
      {R"("structured_outputs": {"structural_tag": 3})",
       R"(structured_outputs.structural_tag: must be an object, not integer 3; send {"structures": [...], "triggers": [...]})"},
      {R"("structured_outputs": {"structural_tag": {"format": {}}})",
       R"(structured_outputs.structural_tag.format: is not supported; send {"structures": [...], "triggers": [...]})"},
      {R"("structured_outputs": {"structural_tag": {"structures": []}})",
       "structured_outputs.structural_tag.triggers: must be an array of strings"},
      {R"("structured_outputs": {"structural_tag": {"triggers": []}})",
       "structured_outputs.structural_tag.structures: must be an array of 1 to 1000 structures"},
      {R"("structured_outputs": {"structural_tag": {"triggers": ["<"], "structures": )" +
           json_list_of(1001, R"({"begin": "<", "schema": {}, "end": ""})") + "}}",
       "structured_outputs.structural_tag.structures: must be an array of 1 to 1000 structures"},
      {R"("structured_outputs": {"structural_tag": {"triggers": ["<"], "structures": )" +
           json_list_of(1000, R"({"begin": "<", "schema": true, "end": ""})") + "}}",
       "accepted"},
      {R"("structured_outputs": {"structural_tag": {"triggers": [], "structures": [3]}})",
       R"(structured_outputs.structural_tag.structures[0]: must be an object, not integer 3; send {"begin", "schema", "end"})"},
      {R"("structured_outputs": {"structural_tag": {"triggers": [], "structures": [{"begin": 3}]}})",
       "structured_outputs.structural_tag.structures[0].begin: must be a string"},
      {R"("structured_outputs": {"structural_tag": {"triggers": [], "structures": [{"begin": "a"}]}})",
       "structured_outputs.structural_tag.structures[0].end: must be a string"},
      {R"("structured_outputs": {"structural_tag": {"triggers": [], "structures": [{"begin": "a", "end": "", "schema": 3}]}})",
       "structured_outputs.structural_tag.structures[0].schema: must be a JSON schema"},
      {R"("structured_outputs": {"structural_tag": {"triggers": ["", 3, "b"], "structures": [{"begin": "a", "end": "", "schema": {}}]}})",
       "structured_outputs.structural_tag.structures[0].begin: does not begin with any of the triggers; add its beginning to triggers"},
  };
  for (const BodyCase& one : cases)
    EXPECT_EQ(request_error(text_request(kHiPrompt + ", " + one.fields)), one.error) << one.fields.substr(0, 200);
}

}  // namespace
}  // namespace quire
