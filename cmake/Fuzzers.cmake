# libFuzzer targets: quire_fuzzer(name room...), one line each.
quire_fuzzer(scheduler core_schedule)
quire_fuzzer(gguf format)
quire_fuzzer(safetensors format)
quire_fuzzer(json format)
quire_fuzzer(tokenizer text)
quire_fuzzer(template text)
quire_fuzzer(http_request server)
