# Each build runs this file (cmake -P). The file writes the commit of the tree into OUTPUT, which changes only with the commit.
set(QUIRE_COMMIT "")
if(EXISTS "${SOURCE}/.git")
  execute_process(COMMAND git --no-optional-locks -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE QUIRE_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
configure_file("${SOURCE}/src/cli/commit.cpp.in" "${OUTPUT}" @ONLY)
