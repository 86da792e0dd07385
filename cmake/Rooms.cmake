# The only table of the rooms and of the includes that each room may have. tools/check_includes.py compares the #include lines and
# ARCHITECTURE.md with it. LINKS: rooms that are used through a facade of include/quire; they are linked and never included. PART: the room
# is part of a larger room, which has its tests.
quire_room(base base TESTS_COMPUTE LIBS fmt::fmt OpenSSL::Crypto Threads::Threads ${QUIRE_XXHASH_LIBS} EXCLUDE ${QUIRE_XXHASH_UNUSED})
quire_room(net net DEPS base LIBS OpenSSL::SSL NO_PCH)
quire_room(format format TESTS_COMPUTE PCH quire_json_pch DEPS base LIBS Boost::json)
# Models of the Hugging Face hub, for commands only.
quire_room(hub hub PCH quire_json_pch DEPS base format net LIBS Boost::json Boost::url OpenSSL::SSL)
quire_room(media media DEPS base LIBS ${QUIRE_PICTURE_LIBS} EXCLUDE ${QUIRE_PICTURE_UNUSED})
quire_room(text text TESTS_COMPUTE PCH quire_json_pch DEPS base LIBS ${ONIGURUMA_LIBRARY} ${UTF8PROC_LIBRARY} Boost::json)
quire_room(log log DEPS base text LIBS spdlog::spdlog NO_PCH)
quire_room(audio audio TESTS_COMPUTE DEPS base LIBS ${QUIRE_SNDFILE_LIBS} EXCLUDE ${QUIRE_SNDFILE_UNUSED})
if(TARGET audio_test AND QUIRE_SNDFILE_LIBS)
  target_compile_definitions(audio_test PRIVATE QUIRE_AUDIO_TESTS=1)
endif()

quire_room(core_kv_hash core/kv/hash PART DEPS base)
quire_room(core_kv core/kv DEPS base core_kv_hash)
quire_room(core_offload core/offload DEPS base)
quire_room(core_agent core/agent DEPS base)
quire_room(core_schedule_requests core/schedule/requests PART DEPS base core_kv core_kv_hash core_agent)
quire_room(core_schedule_moves core/schedule/moves PART DEPS base core_kv core_schedule_requests)
quire_room(core_schedule_loops core/schedule/loops PART DEPS base core_kv core_schedule_requests core_schedule_moves)
quire_room(core_schedule_results core/schedule/results PART DEPS base core_kv core_schedule_requests core_schedule_moves)
# Checkpoints use the byte formats of the journal, and the journal replays calls through the facade.
quire_room(core_schedule core/schedule DEPS base core_agent core_journal core_kv core_kv_hash core_schedule_requests core_schedule_moves
           core_schedule_loops core_schedule_results)
quire_room(core_journal core/journal TESTS_COMPUTE DEPS base LINKS core_schedule)
quire_room(core_explain core/explain TESTS_COMPUTE DEPS base LINKS core_schedule)
quire_room(core_curve core/curve DEPS base LINKS core_schedule)
quire_room(core_connect core/connect DEPS base core_offload LINKS core_schedule)

quire_room(memory runtime/memory DEPS base)
include(cmake/Kernels.cmake)
quire_room(sample runtime/sample TESTS_COMPUTE DEPS base)
quire_room(grammar runtime/grammar DEPS base LINKS text LIBS Boost::json EXCLUDE ${QUIRE_LLGUIDANCE_UNUSED})
# Private, so that adding the library later recompiles one file, not all rooms that depend on this room.
target_link_libraries(quire_grammar PRIVATE ${QUIRE_LLGUIDANCE_LIBS})
quire_room(model_config runtime/model/config PART PCH quire_json_pch DEPS base format kernel)
quire_room(model_packed runtime/model/packed PART DEPS base kernel)
quire_room(model_weights runtime/model/weights PART DEPS base format kernel memory model_config model_packed)
quire_room(model_layers runtime/model/layers PART DEPS base kernel memory model_config model_packed model_weights)
quire_room(model runtime/model TESTS_COMPUTE DEPS base kernel memory model_config model_packed model_weights model_layers LINKS format)
quire_room(transport runtime/transport DEPS base)
quire_room(tier runtime/tier TESTS_COMPUTE DEPS base LIBS ${QUIRE_URING_LIBS} EXCLUDE ${QUIRE_URING_UNUSED})
quire_room(remote runtime/remote TESTS_COMPUTE DEPS base net tier LIBS Boost::url ${QUIRE_HIREDIS_LIBS} EXCLUDE ${QUIRE_HIREDIS_UNUSED})
quire_room(worker runtime/worker TESTS_COMPUTE DEPS base memory kernel sample model model_weights transport)

quire_room(engine_stats engine/stats PART DEPS base)
quire_room(engine_trace engine/trace PART DEPS base LINKS core_schedule)
quire_room(engine_journal engine/journal PART DEPS base core_journal core_kv_hash LINKS core_schedule)
quire_room(engine_publish engine/publish PART DEPS base LINKS log LIBS ${QUIRE_ZMQ_LIBS} EXCLUDE ${QUIRE_ZMQ_UNUSED})
quire_room(engine_tiers engine/tiers PART DEPS base core_connect remote tier transport engine_stats LINKS core_schedule)
quire_room(engine_offload engine/offload PART DEPS base core_offload tier)
quire_room(engine_adapters engine/adapters PART DEPS base model_weights worker LINKS log model)
quire_room(engine_requests engine/requests PART DEPS base core_kv_hash engine_adapters engine_stats grammar worker LINKS core_schedule sample)
quire_room(engine_loop engine/loop PART DEPS base worker engine_adapters engine_publish engine_requests engine_stats engine_trace LINKS core_schedule core_explain core_curve)
quire_room(engine engine DEPS base core_kv core_kv_hash kernel memory model model_weights tier worker engine_adapters engine_loop engine_publish engine_requests engine_tiers engine_trace LINKS log core_schedule core_explain core_curve engine_journal engine_offload)
quire_room(lab lab PCH quire_json_pch DEPS base core_connect core_journal LINKS core_schedule core_curve engine LIBS Boost::json ${QUIRE_ZLIB_LIBS} EXCLUDE ${QUIRE_ZLIB_UNUSED})
# The load generator of quire bench --url.
quire_room(traffic traffic PCH quire_json_pch DEPS base format net text LINKS lab LIBS Boost::json Boost::url)
# The rooms of the server, in the order in which a request passes through them.
quire_room(server_http server/http PART DEPS base net text LINKS log LIBS Boost::url OpenSSL::SSL NO_PCH)
quire_room(server_request server/request PART PCH quire_json_pch DEPS base format media text server_http LINKS engine LIBS Boost::json)
quire_room(server_answers server/answers PART PCH quire_json_pch DEPS base text server_http server_request LINKS engine)
quire_room(server_api server/api PART PCH quire_json_pch DEPS base server_http server_request server_answers LINKS log EXCLUDE openai responses anthropic pooling audio ollama llama_cpp)
quire_room(server_openai server/api/openai PART PCH quire_json_pch DEPS base text server_http server_request server_answers server_api)
quire_room(server_responses server/api/responses PART PCH quire_json_pch DEPS base text server_http server_request server_answers server_api)
quire_room(server_anthropic server/api/anthropic PART PCH quire_json_pch DEPS base text server_http server_request server_answers server_api)
quire_room(server_pooling server/api/pooling PART PCH quire_json_pch DEPS base server_http server_request server_answers server_api)
quire_room(server_ollama server/api/ollama PART PCH quire_json_pch DEPS base text server_http server_request server_answers server_api server_pooling)
quire_room(server_llama_cpp server/api/llama_cpp PART PCH quire_json_pch DEPS base server_http server_request server_answers server_api)
quire_room(server_audio server/api/audio PART PCH quire_json_pch DEPS base text audio server_http server_request server_answers server_api
           LIBS ${QUIRE_DEFLATE_LIBS} EXCLUDE ${QUIRE_DEFLATE_UNUSED})
quire_room(server_operate server/operate PART PCH quire_json_pch DEPS base text server_http server_request server_api LINKS engine)
quire_room(server_models server/models PART PCH quire_json_pch DEPS base server_http server_api server_ollama server_anthropic server_audio server_operate
           LINKS engine log)
quire_room(server server PCH quire_json_pch DEPS base text server_http server_request server_api server_openai server_responses server_anthropic server_pooling server_ollama server_llama_cpp server_audio server_operate
           LINKS engine log)
# The server does not use the room of several models; only the command does.
if(TARGET server_test)
  target_link_libraries(server_test PRIVATE quire_server_models)
endif()
quire_embed(server_operate server/operate/api_page.h api_page_html src/server/operate/api_page.html)
quire_embed(server_operate server/operate/api_page.h openapi_json docs/openapi.json)
include(cmake/Pages.cmake)
quire_room(cli_flags cli/flags PART PCH quire_json_pch DEPS base server_http LINKS server engine LIBS CLI11::CLI11)
quire_room(cli cli PCH quire_json_pch DEPS base hub text traffic server_http server_models cli_flags LINKS server engine tier lab LIBS CLI11::CLI11 EXCLUDE main.cpp flags)
# The C API (quire/quire.h), for libquire_c.so (cmake/Shared.cmake).
quire_room(capi capi PCH quire_json_pch DEPS base cli_flags format LINKS server engine LIBS Boost::json CLI11::CLI11)
quire_embed(cli cli/result_files.h plot_page_html src/cli/plot_page.html)
include(cmake/Cli.cmake)
include(cmake/TextTests.cmake)
include(cmake/TemplateTests.cmake)
include(cmake/AgentTests.cmake)

# A unity build (presets gcc-check and lint) compiles a room's files together, so a file-local name may occur once per room. These files are
# compiled separately, because each repeats names of a sibling on purpose (two file formats of one config, Jinja's filters and methods).
set_source_files_properties(src/runtime/model/config/config_gguf.cpp src/text/template/methods_text.cpp src/text/template/tests.cpp
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
