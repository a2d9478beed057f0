# Run by every build (cmake -P): writes OUTPUT from TEMPLATE if the version or commit has changed.
set(BH_VERSION ${PROJECT_VERSION})
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse --short=7 HEAD
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    string(APPEND BH_VERSION " (${commit})")
  endif()
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
