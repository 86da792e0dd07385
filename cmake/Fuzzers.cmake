# libFuzzer targets: quire_fuzzer(name room...), one line each.
quire_fuzzer(core core_schedule)
quire_fuzzer(offload core_offload)
quire_fuzzer(gguf format)
quire_fuzzer(safetensors format)
quire_fuzzer(json format)
quire_fuzzer(tokenizer text)
quire_fuzzer(template text)
quire_fuzzer(http_request server)

# The core's events in a build without libFuzzer: a short run is a test, --events 1000000000 the long one.
if(QUIRE_BUILD_TESTS)
  add_executable(core_stress tests/fuzz/core_stress.cpp)
  target_compile_options(core_stress PRIVATE ${QUIRE_WARNINGS})
  target_include_directories(core_stress PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(core_stress PRIVATE quire_core_schedule)
  add_test(NAME core_stress COMMAND core_stress --events 200000)
  set_tests_properties(core_stress PROPERTIES LABELS stress TIMEOUT 300)
endif()
