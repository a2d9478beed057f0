# Read by every cpack: the package's version ends in date and commit, as apt does not replace a package by one of the
# same version. The file's name stays, so that a build folder has one package.
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env TZ=UTC ${GIT} -C ${CMAKE_CURRENT_LIST_DIR} log -1 --abbrev=7
                          --date=format-local:%Y%m%d.%H%M%S "--format=%cd.%h %cD"
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(commit MATCHES "^([0-9]+\\.[0-9]+\\.[0-9a-f]+) (.*)$")
  set(CPACK_DEBIAN_PACKAGE_VERSION ${CPACK_PACKAGE_VERSION}+${CMAKE_MATCH_1})
  set(BULKHEAD_PACKAGE_DATE ${CMAKE_MATCH_2})
else()
  set(CPACK_DEBIAN_PACKAGE_VERSION ${CPACK_PACKAGE_VERSION})
  string(TIMESTAMP BULKHEAD_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
  message(WARNING "git does not know the commit: the package's version is ${CPACK_PACKAGE_VERSION} alone")
endif()
