// Tests libquire_c.so from C11: errors without a model, then answers of the model in QUIRE_TEST_MODEL. Prints each promise that does not
// hold, and then exits with 1. Without a model exits with 77, which ctest reports as skipped.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "quire/quire.h"

static int num_failed = 0;

#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      ++num_failed;                                                             \
    }                                                                           \
  } while (0)

// Checks the code and a part of the message of a failed call, and frees the error.
static void expect_error(int line, quire_code code, quire_code expected, quire_error* error, const char* part) {
  if (code != expected || error == NULL || strstr(quire_error_message(error), part) == NULL) {
    fprintf(stderr, "line %d: code %d, expected %d with '%s': %s\n", line, (int)code, (int)expected, part,
            error == NULL ? "no error" : quire_error_message(error));
    ++num_failed;
  }
  EXPECT(quire_error_free(error) == QUIRE_OK);
}
#define EXPECT_ERROR(call, expected, part)               \
  do {                                                   \
    quire_error* error = NULL;                           \
    const quire_code code = (call);                      \
    expect_error(__LINE__, code, expected, error, part); \
  } while (0)

// Ends the program if a call fails that all further checks need. `error` is a pointer, because C does not say which argument is evaluated
// first.
static void require(quire_code code, quire_error** error) {
  if (code == QUIRE_OK) return;
  fprintf(stderr, "code %d: %s\n", (int)code, quire_error_message(*error));
  exit(1);
}

static quire_request* submit(quire_engine* engine, const char* path, const char* body) {
  quire_request* request = NULL;
  quire_error* error = NULL;
  require(quire_submit(engine, path, body, &request, &error), &error);
  return request;
}

// The joined outputs of choice 0.
typedef struct {
  char text[4096];
  char json[16384];  // of the last output
  char finish_reason[32];
  size_t num_tokens, num_outputs;
  quire_code end;
} answer;

static answer read_answer(quire_request* request) {
  answer all = {0};
  quire_output output = QUIRE_OUTPUT_INIT;
  quire_error* error = NULL;
  while ((all.end = quire_poll(request, -1, &output, &error)) == QUIRE_OK) {
    ++all.num_outputs;
    EXPECT(strlen(output.text) == output.text_size);
    EXPECT(output.struct_size == sizeof output);
    strncat(all.text, output.text, sizeof all.text - strlen(all.text) - 1);
    if (output.json != NULL) snprintf(all.json, sizeof all.json, "%s", output.json);
    if (output.finish_reason != NULL) snprintf(all.finish_reason, sizeof all.finish_reason, "%s", output.finish_reason);
    all.num_tokens += output.num_token_ids;
  }
  if (error != NULL) fprintf(stderr, "%s\n", quire_error_message(error));
  quire_error_free(error);
  return all;
}

static void check_versions(void) {
  EXPECT(quire_c_version() == QUIRE_C_VERSION);
  EXPECT(strcmp(quire_version(), "0.1.0") == 0);
}

static void check_invalid_handles(void) {
  quire_output output = QUIRE_OUTPUT_INIT;
  quire_request* request = NULL;
  char* json = NULL;
  EXPECT(quire_engine_free(NULL) == QUIRE_OK);
  EXPECT(quire_request_free(NULL) == QUIRE_OK);
  EXPECT(quire_error_free(NULL) == QUIRE_OK);
  quire_string_free(NULL);
  EXPECT_ERROR(quire_stats(NULL, &json, &error), QUIRE_INVALID_HANDLE, "engine: the handle is null");
  EXPECT_ERROR(quire_submit(NULL, "/v1/completions", "{}", &request, &error), QUIRE_INVALID_HANDLE, "engine: the handle is null");
  EXPECT(request == NULL);
  EXPECT_ERROR(quire_poll(NULL, 0, &output, &error), QUIRE_INVALID_HANDLE, "request: the handle is null");
  EXPECT_ERROR(quire_wait(NULL, 0, &error), QUIRE_INVALID_HANDLE, "request");
  EXPECT_ERROR(quire_cancel(NULL, &error), QUIRE_INVALID_HANDLE, "request");
  EXPECT_ERROR(quire_explain(NULL, &json, &error), QUIRE_INVALID_HANDLE, "request");
  EXPECT(quire_request_id(NULL) == NULL);
  EXPECT(quire_poll(NULL, 0, &output, NULL) == QUIRE_INVALID_HANDLE);  // without a place for the error
  EXPECT(strstr(quire_error_message(NULL), "null") != NULL);
  EXPECT(strcmp(quire_error_field(NULL), "") == 0);
  quire_error* error = NULL;
  quire_cancel(NULL, &error);
  EXPECT(quire_error_free(error) == QUIRE_OK);
  EXPECT(quire_error_free(error) == QUIRE_INVALID_HANDLE);
  EXPECT(strstr(quire_error_message(error), "freed") != NULL);
}

static void check_load_errors(void) {
  quire_engine* engine = (quire_engine*)&num_failed;  // a failed call must overwrite it
  EXPECT_ERROR(quire_engine_load(NULL, NULL, &engine, &error), QUIRE_INVALID_ARGUMENT, "model: is empty");
  EXPECT(engine == NULL);
  EXPECT_ERROR(quire_engine_load("m", NULL, NULL, &error), QUIRE_INVALID_ARGUMENT, "engine: is NULL");
  EXPECT_ERROR(quire_engine_load("/no/such/model.gguf", NULL, &engine, &error), QUIRE_NOT_FOUND, "/no/such/model.gguf");
  EXPECT_ERROR(quire_engine_load("m", "{", &engine, &error), QUIRE_INVALID_ARGUMENT, "options: ");
  EXPECT_ERROR(quire_engine_load("m", "[]", &engine, &error), QUIRE_INVALID_ARGUMENT, "options: is not a JSON object");
  EXPECT_ERROR(quire_engine_load("m", "{\"max-num-sqs\": 1}", &engine, &error), QUIRE_INVALID_ARGUMENT, "did you mean 'max-num-seqs'?");
  EXPECT_ERROR(quire_engine_load("m", "{\"max-num-seqs\": \"many\"}", &engine, &error), QUIRE_INVALID_ARGUMENT, "--max-num-seqs: 'many'");
  EXPECT_ERROR(quire_engine_load("m", "{\"max-num-seqs\": 1, \"max-num-seqs\": 2}", &engine, &error), QUIRE_INVALID_ARGUMENT,
               "max-num-seqs");
  EXPECT_ERROR(quire_engine_load("m", "{\"kv-lifo\": 1}", &engine, &error), QUIRE_INVALID_ARGUMENT, "--kv-lifo: '1' is not true or false");
  EXPECT_ERROR(quire_engine_load("m", "{\"port\": 80}", &engine, &error), QUIRE_INVALID_ARGUMENT, "--port: has no effect");
  quire_error* error = NULL;
  EXPECT(quire_engine_load("m", "{\"port\": 80}", &engine, &error) == QUIRE_INVALID_ARGUMENT);
  EXPECT(strcmp(quire_error_field(error), "--port") == 0);
  quire_error_free(error);
}

static const char* const kStream =
    "{\"prompt\": \"Once upon a time\", \"max_tokens\": 12, \"temperature\": 0, \"stream\": true, \"return_token_ids\": true}";
static const char* const kWhole = "{\"prompt\": \"Once upon a time\", \"max_tokens\": 12, \"temperature\": 0}";
static const char* const kEndless = "{\"prompt\": \"One, two\", \"max_tokens\": 4000, \"ignore_eos\": true, \"stream\": true}";

static void check_answers(quire_engine* engine) {
  quire_request* request = submit(engine, "/v1/completions", kStream);
  const answer streamed = read_answer(request);
  EXPECT(streamed.end == QUIRE_END);
  EXPECT(streamed.num_outputs > 1);
  EXPECT(streamed.num_tokens == 12);
  EXPECT(strcmp(streamed.finish_reason, "length") == 0);
  EXPECT(strstr(streamed.json, quire_request_id(request)) != NULL);
  EXPECT(strncmp(quire_request_id(request), "cmpl-", 5) == 0);
  EXPECT(read_answer(request).end == QUIRE_END);  // the end stays
  EXPECT(quire_request_free(request) == QUIRE_OK);

  request = submit(engine, "/v1/completions", kWhole);
  EXPECT(quire_wait(request, -1, NULL) == QUIRE_OK);
  const answer whole = read_answer(request);
  EXPECT(whole.num_outputs == 1);
  EXPECT(strlen(whole.text) > 0);
  EXPECT(strcmp(whole.text, streamed.text) == 0);
  quire_request_free(request);

  request = submit(
      engine, "/v1/chat/completions",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"What is the capital of France?\"}], \"max_tokens\": 24, \"temperature\": 0}");
  const answer chat = read_answer(request);
  EXPECT(strstr(chat.text, "Paris") != NULL);
  EXPECT(strncmp(quire_request_id(request), "chatcmpl-", 9) == 0);
  char* json = NULL;
  EXPECT(quire_explain(request, &json, NULL) == QUIRE_OK);
  EXPECT(json != NULL && strstr(json, quire_request_id(request)) != NULL);
  quire_string_free(json);
  quire_request_free(request);
}

static void check_other_routes(quire_engine* engine) {
  quire_request* request = submit(engine, "/tokenize", "{\"prompt\": \"Hello\"}");
  const answer tokens = read_answer(request);
  EXPECT(strstr(tokens.json, "\"tokens\"") != NULL);
  EXPECT(strcmp(tokens.text, "") == 0);
  EXPECT(strcmp(quire_request_id(request), "") == 0);
  char* json = NULL;
  EXPECT_ERROR(quire_explain(request, &json, &error), QUIRE_UNSUPPORTED, "only completions and chats");
  quire_request_free(request);
  request = submit(engine, "/metrics", NULL);
  const answer metrics = read_answer(request);
  EXPECT(strstr(metrics.text, "vllm:num_requests_running") != NULL);
  EXPECT(strcmp(metrics.json, "") == 0);
  quire_request_free(request);
  EXPECT(quire_stats(engine, &json, NULL) == QUIRE_OK);
  EXPECT(json != NULL && strstr(json, "\"generation_tokens\":") != NULL);
  quire_string_free(json);
}

static void check_request_errors(quire_engine* engine) {
  quire_request* request = NULL;
  EXPECT_ERROR(quire_submit(engine, "/v1/completions", "{\"prompt\": \"a\", \"temperature\": -1}", &request, &error),
               QUIRE_INVALID_ARGUMENT, "temperature");
  EXPECT(request == NULL);
  EXPECT_ERROR(quire_submit(engine, "/v1/completions", "{", &request, &error), QUIRE_INVALID_ARGUMENT, "");
  EXPECT_ERROR(quire_submit(engine, "/v1/nothing", "{}", &request, &error), QUIRE_NOT_FOUND, "/v1/nothing");
  EXPECT_ERROR(quire_submit(engine, "/v1/completions", NULL, &request, &error), QUIRE_INVALID_ARGUMENT, "POST");
  EXPECT_ERROR(quire_submit(engine, NULL, "{}", &request, &error), QUIRE_INVALID_ARGUMENT, "path: is NULL");
  EXPECT_ERROR(quire_submit(engine, "/v1/completions", kWhole, NULL, &error), QUIRE_INVALID_ARGUMENT, "request: is NULL");
  request = submit(engine, "/v1/completions", kWhole);
  EXPECT_ERROR(quire_poll(request, 0, NULL, &error), QUIRE_INVALID_ARGUMENT, "output: is NULL");
  quire_output output = {0};
  EXPECT_ERROR(quire_poll(request, 0, &output, &error), QUIRE_INVALID_ARGUMENT, "QUIRE_OUTPUT_INIT");
  // A handle of another kind, and handles that were freed.
  EXPECT_ERROR(quire_stats((quire_engine*)request, (char**)&output, &error), QUIRE_INVALID_HANDLE, "engine");
  EXPECT(quire_request_free((quire_request*)engine) == QUIRE_INVALID_HANDLE);
  EXPECT(quire_request_free(request) == QUIRE_OK);
  EXPECT(quire_request_free(request) == QUIRE_INVALID_HANDLE);
  EXPECT_ERROR(quire_cancel(request, &error), QUIRE_INVALID_HANDLE, "was freed");
}

static int cancel_on_thread(void* request) {
  return (int)quire_cancel(request, NULL);
}

static void check_cancel(quire_engine* engine) {
  quire_request* request = submit(engine, "/v1/completions", kEndless);
  quire_output output = QUIRE_OUTPUT_INIT;
  EXPECT(quire_poll(request, -1, &output, NULL) == QUIRE_OK);
  EXPECT(quire_wait(request, 0, NULL) == QUIRE_TIMEOUT);
  thrd_t canceller;
  EXPECT(thrd_create(&canceller, cancel_on_thread, request) == thrd_success);
  EXPECT(read_answer(request).end == QUIRE_CANCELLED);
  int code = -1;
  thrd_join(canceller, &code);
  EXPECT(code == QUIRE_OK);
  EXPECT(quire_cancel(request, NULL) == QUIRE_OK);  // after the end it does nothing
  quire_request_free(request);
}

static void check_free_with_open_requests(quire_engine* engine) {
  quire_request* request = submit(engine, "/v1/completions", kEndless);
  quire_output output = QUIRE_OUTPUT_INIT;
  char* json = NULL;
  quire_error* error = NULL;
  EXPECT(quire_engine_free(engine) == QUIRE_OK);
  EXPECT(quire_engine_free(engine) == QUIRE_INVALID_HANDLE);
  quire_code code = QUIRE_OK;
  while (code == QUIRE_OK) code = quire_poll(request, -1, &output, &error);
  expect_error(__LINE__, code, QUIRE_SHUTTING_DOWN, error, "the engine was freed");
  EXPECT_ERROR(quire_explain(request, &json, &error), QUIRE_SHUTTING_DOWN, "the engine was freed");
  EXPECT_ERROR(quire_stats(engine, &json, &error), QUIRE_INVALID_HANDLE, "was freed");
  EXPECT(quire_request_free(request) == QUIRE_OK);
}

int main(void) {
  check_versions();
  check_invalid_handles();
  check_load_errors();
  if (num_failed > 0) return 1;
  const char* const model = getenv("QUIRE_TEST_MODEL");
  if (model == NULL) {
    puts("c_api_program: Skipped\nQUIRE_TEST_MODEL is not set, so only errors were tested");
    return 77;
  }
  quire_engine* engine = NULL;
  quire_error* error = NULL;
  require(quire_engine_load(model, "{\"max-model-len\": 4096, \"kv-cache-memory\": \"256MiB\", \"max-num-seqs\": 4}", &engine, &error),
          &error);
  check_answers(engine);
  check_other_routes(engine);
  check_request_errors(engine);
  check_cancel(engine);
  check_free_with_open_requests(engine);
  return num_failed > 0;
}
