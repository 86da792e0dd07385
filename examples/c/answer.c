// Completes a text: answer MODEL.gguf
#include <quire/quire.h>
#include <stdio.h>

int main(int argc, char** argv) {
  quire_engine* engine = NULL;
  quire_request* request = NULL;
  quire_error* error = NULL;
  quire_output output = QUIRE_OUTPUT_INIT;
  const char* options = "{\"kv-cache-memory\": \"256MiB\", \"max-model-len\": 2048}";
  const char* body = "{\"prompt\": \"The capital of France is\", \"max_tokens\": 16, \"temperature\": 0, \"stream\": true}";
  quire_code code = quire_engine_load(argc > 1 ? argv[1] : "model.gguf", options, &engine, &error);
  if (code == QUIRE_OK) code = quire_submit(engine, "/v1/completions", body, &request, &error);
  while (code == QUIRE_OK)
    if ((code = quire_poll(request, -1, &output, &error)) == QUIRE_OK) fwrite(output.text, 1, output.text_size, stdout);
  if (code != QUIRE_END) fprintf(stderr, "%s\n", quire_error_message(error));
  quire_error_free(error);
  quire_request_free(request);
  quire_engine_free(engine);
  return code == QUIRE_END ? 0 : 1;
}
