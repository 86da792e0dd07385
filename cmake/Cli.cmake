# The `quire` command.
add_executable(quire src/cli/main.cpp)
target_compile_options(quire PRIVATE ${QUIRE_WARNINGS})
target_link_libraries(quire PRIVATE quire_cli)
install(TARGETS quire RUNTIME DESTINATION bin)
