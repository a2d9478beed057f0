# Run by every build (cmake -P): writes OUTPUT from TEMPLATE if the version or commit has changed.
set(BH_VERSION ${PROJECT_VERSION})
set(commit_date unknown)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} log -1 --abbrev=7 --format=%h:%cs
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND commit MATCHES "^([0-9a-f]+):(.+)$")
    string(APPEND BH_VERSION " (${CMAKE_MATCH_1})")
    set(commit_date ${CMAKE_MATCH_2})
  endif()
endif()
string(APPEND BH_BUILD " | commit date: ${commit_date}")
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
