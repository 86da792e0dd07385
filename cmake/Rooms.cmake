# The rooms and who may include whom: the one table. tools/check_includes.py holds the #include lines and ARCHITECTURE.md against it.
# LINKS: used behind a facade of include/quire, linked and never included. PART: of a larger room, whose tests are its tests.
quire_room(base base LIBS fmt::fmt OpenSSL::Crypto Threads::Threads ${QUIRE_XXHASH_LIBS} EXCLUDE ${QUIRE_XXHASH_UNUSED})
quire_room(format format DEPS base LIBS Boost::json)
quire_room(media media DEPS base LIBS ${QUIRE_PICTURE_LIBS} EXCLUDE ${QUIRE_PICTURE_UNUSED})
quire_room(text text DEPS base LIBS ${ONIGURUMA_LIBRARY} ${UTF8PROC_LIBRARY} Boost::json)
quire_room(log log DEPS base text LIBS spdlog::spdlog NO_PCH)

quire_room(core_kv_hash core/kv/hash PART DEPS base)
quire_room(core_kv core/kv DEPS base core_kv_hash)
quire_room(core_offload core/offload DEPS base)
quire_room(core_agent core/agent DEPS base)
quire_room(core_schedule_requests core/schedule/requests PART DEPS base core_kv core_kv_hash core_agent)
quire_room(core_schedule_moves core/schedule/moves PART DEPS base core_kv core_schedule_requests)
quire_room(core_schedule_loops core/schedule/loops PART DEPS base core_kv core_schedule_requests core_schedule_moves)
quire_room(core_schedule_results core/schedule/results PART DEPS base core_kv core_schedule_requests core_schedule_moves)
# The byte forms of the journal are under checkpoints, and the journal plays calls back through the facade.
quire_room(core_schedule core/schedule DEPS base core_agent core_journal core_kv core_kv_hash core_schedule_requests core_schedule_moves
           core_schedule_loops core_schedule_results)
quire_room(core_journal core/journal DEPS base LINKS core_schedule)
quire_room(core_explain core/explain DEPS base LINKS core_schedule)
quire_room(core_curve core/curve DEPS base LINKS core_schedule)
quire_room(core_connect core/connect DEPS base core_offload LINKS core_schedule)

quire_room(memory runtime/memory DEPS base)
include(cmake/Kernels.cmake)
quire_room(sample runtime/sample DEPS base)
quire_room(grammar runtime/grammar DEPS base LINKS text LIBS Boost::json EXCLUDE ${QUIRE_LLGUIDANCE_UNUSED})
# Private, so that getting it later compiles one file anew and not all that stand on this room.
target_link_libraries(quire_grammar PRIVATE ${QUIRE_LLGUIDANCE_LIBS})
quire_room(model runtime/model DEPS base format memory kernel)
quire_room(transport runtime/transport DEPS base)
quire_room(tier runtime/tier DEPS base LIBS ${QUIRE_URING_LIBS} EXCLUDE ${QUIRE_URING_UNUSED})
quire_room(remote runtime/remote DEPS base tier LIBS OpenSSL::SSL Boost::url ${QUIRE_HIREDIS_LIBS} EXCLUDE ${QUIRE_HIREDIS_UNUSED})
quire_room(worker runtime/worker DEPS base memory kernel sample model transport)

quire_room(engine_stats engine/stats PART DEPS base)
quire_room(engine_trace engine/trace PART DEPS base LINKS core_schedule)
quire_room(engine_journal engine/journal PART DEPS base core_journal core_kv_hash LINKS core_schedule)
quire_room(engine_publish engine/publish PART DEPS base LINKS log LIBS ${QUIRE_ZMQ_LIBS} EXCLUDE ${QUIRE_ZMQ_UNUSED})
quire_room(engine_tiers engine/tiers PART DEPS base core_connect remote tier transport engine_stats LINKS core_schedule)
quire_room(engine_offload engine/offload PART DEPS base core_offload tier)
quire_room(engine_adapters engine/adapters PART DEPS base model worker LINKS log)
quire_room(engine_requests engine/requests PART DEPS base core_kv_hash engine_adapters engine_stats grammar worker LINKS core_schedule sample)
quire_room(engine_loop engine/loop PART DEPS base worker engine_adapters engine_publish engine_requests engine_stats engine_trace LINKS core_schedule core_explain core_curve)
quire_room(engine engine DEPS base core_kv core_kv_hash memory model worker engine_adapters engine_loop engine_publish engine_requests engine_tiers engine_trace LINKS log core_schedule core_explain core_curve engine_journal engine_offload)
quire_room(lab lab DEPS base core_connect core_journal LINKS core_schedule core_curve engine LIBS Boost::json ${QUIRE_ZLIB_LIBS} EXCLUDE ${QUIRE_ZLIB_UNUSED})
# The server, in the order in which a request comes through it.
quire_room(server_http server/http PART DEPS base text LINKS log LIBS Boost::url NO_PCH)
quire_room(server_request server/request PART DEPS base media text server_http LINKS engine LIBS Boost::json NO_PCH)
quire_room(server_answers server/answers PART DEPS base text server_http server_request LINKS engine NO_PCH)
quire_room(server_api server/api PART DEPS base server_http server_request server_answers LINKS log NO_PCH EXCLUDE openai responses anthropic pooling)
quire_room(server_openai server/api/openai PART DEPS base text server_http server_request server_answers server_api NO_PCH)
quire_room(server_responses server/api/responses PART DEPS base text server_http server_request server_answers server_api NO_PCH)
quire_room(server_anthropic server/api/anthropic PART DEPS base text server_http server_request server_answers server_api NO_PCH)
quire_room(server_pooling server/api/pooling PART DEPS base server_http server_request server_answers server_api NO_PCH)
quire_room(server_operate server/operate PART DEPS base text server_http server_request server_api LINKS engine NO_PCH)
quire_room(server server DEPS base text server_http server_request server_api server_openai server_responses server_anthropic server_pooling server_operate
           LINKS engine log NO_PCH)
# The chat page becomes part of the binary.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS src/server/operate/chat_page.html)
file(READ "${PROJECT_SOURCE_DIR}/src/server/operate/chat_page.html" QUIRE_CHAT_PAGE)
configure_file(src/server/operate/chat_page.cpp.in generated/chat_page.cpp @ONLY)
target_sources(quire_server_operate PRIVATE "${PROJECT_BINARY_DIR}/generated/chat_page.cpp")
# So do the description of the API and the page that shows it.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS docs/openapi.json src/server/operate/api_page.html)
file(READ "${PROJECT_SOURCE_DIR}/docs/openapi.json" QUIRE_OPENAPI)
file(READ "${PROJECT_SOURCE_DIR}/src/server/operate/api_page.html" QUIRE_API_PAGE)
configure_file(src/server/operate/api_page.cpp.in generated/api_page.cpp @ONLY)
target_sources(quire_server_operate PRIVATE "${PROJECT_BINARY_DIR}/generated/api_page.cpp")
include(cmake/Dashboard.cmake)
quire_room(cli cli DEPS base text server_http LINKS server engine tier lab LIBS CLI11::CLI11 EXCLUDE main.cpp)
include(cmake/Cli.cmake)
include(cmake/TextTests.cmake)
include(cmake/TemplateTests.cmake)
include(cmake/AgentTests.cmake)

# A unity build (presets gcc-check and lint) compiles a room's files together, so a file-local name is used once in a room. These files
# stay by themselves: each repeats the words of a sibling on purpose (two file formats of one config, Jinja's filters and methods).
set_source_files_properties(src/runtime/model/config_gguf.cpp src/text/template/methods_text.cpp src/text/template/tests.cpp
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
