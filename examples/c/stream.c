// Streams an answer, explains it, and cancels a second one.
// stream MODEL.gguf "Name three rivers."
#include <stdio.h>
#include <stdlib.h>

#include "quire/quire.h"

// Ends the program if a call has failed. `error` is a pointer, because C does not say which argument is evaluated first.
static void check(quire_code code, quire_error** error) {
  if (code == QUIRE_OK) return;
  fprintf(stderr, "%s\n", quire_error_message(*error));
  exit(1);
}

// Returns the body of a chat request with `question`, a JSON string without its quotes.
static char* chat(const char* question, int max_tokens) {
  const char* const form =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}], \"max_tokens\": %d, \"temperature\": 0, \"stream\": true}";
  const int size = snprintf(NULL, 0, form, question, max_tokens) + 1;
  char* const body = malloc((size_t)size);
  if (body == NULL) exit(1);
  snprintf(body, (size_t)size, form, question, max_tokens);
  return body;
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: stream MODEL.gguf QUESTION\n"), 2;
  quire_engine* engine = NULL;
  quire_request* request = NULL;
  quire_error* error = NULL;
  check(quire_engine_load(argv[1], "{\"max-model-len\": 2048}", &engine, &error), &error);

  char* body = chat(argv[2], 48);
  check(quire_submit(engine, "/v1/chat/completions", body, &request, &error), &error);
  quire_output output = QUIRE_OUTPUT_INIT;
  quire_code code;
  while ((code = quire_poll(request, -1, &output, &error)) == QUIRE_OK) {
    fwrite(output.text, 1, output.text_size, stdout);
    fflush(stdout);
  }
  if (code != QUIRE_END) check(code, &error);
  char* explanation = NULL;
  check(quire_explain(request, &explanation, &error), &error);
  printf("\n%s\n", explanation);
  quire_string_free(explanation);
  quire_request_free(request);

  check(quire_submit(engine, "/v1/chat/completions", body, &request, &error), &error);
  check(quire_cancel(request, &error), &error);
  while ((code = quire_poll(request, -1, &output, &error)) == QUIRE_OK) continue;
  puts(code == QUIRE_CANCELLED ? "cancelled" : "ended before it was cancelled");
  quire_request_free(request);
  free(body);
  return quire_engine_free(engine) == QUIRE_OK ? 0 : 1;
}
