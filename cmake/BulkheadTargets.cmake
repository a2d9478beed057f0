# The three kinds of targets in this project, one function each, so that flags are in one place.
find_program(CCACHE ccache)
if(CCACHE)
  # One cache for all build folders of a work tree: paths are relative to it.
  set(launcher env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# Headers are most of what the compiler reads: eight sources at once take the time of two.
option(BH_UNITY_BUILD "Compile sources of a target together; OFF compiles each by itself" ON)
find_program(BH_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
function(bulkhead_group_sources target)
  if(NOT BH_UNITY_BUILD)
    return()
  endif()
  list(TRANSFORM ARGN REPLACE "^([^/].*)$" "${CMAKE_CURRENT_SOURCE_DIR}/\\1" OUTPUT_VARIABLE sources)
  execute_process(COMMAND ${BH_SYSTEM_PYTHON} -B ${PROJECT_SOURCE_DIR}/cmake/unity_groups.py ${PROJECT_SOURCE_DIR} ${sources}
                  OUTPUT_VARIABLE groups COMMAND_ERROR_IS_FATAL ANY)
  while(groups)
    list(POP_FRONT groups source group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${target}_${group})
  endwhile()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

add_library(bulkhead_flags INTERFACE)
# Products and sums have a fixed order: the compiler may neither fuse nor reorder them.
# Warnings of a later g++ than Debian 12's do not end a user's build.
set(later_gcc $<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>)
target_compile_options(bulkhead_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;$<$<NOT:${later_gcc}>:-Werror>;-ffp-contract=off;-fno-math-errno>"
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>  # g++ 12 warns about its own std::string
  $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:C,CXX>>:-g1>)
target_compile_definitions(bulkhead_flags INTERFACE BH_DEBUG_BUILD=$<CONFIG:Debug>)
target_include_directories(bulkhead_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
if(BH_SANITIZE)
  # g++ mistakes its own instrumentation for uninitialised memory.
  target_compile_options(bulkhead_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${BH_SANITIZE};-fno-omit-frame-pointer>"
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  target_link_options(bulkhead_flags INTERFACE -fsanitize=${BH_SANITIZE})
  if(BH_SANITIZE STREQUAL "thread")
    # Fences of boost::asio, which ThreadSanitizer does not know.
    target_compile_options(bulkhead_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-tsan>)
    foreach(call 5Mutex4LockEv 5Mutex6UnlockEv 5Mutex7TryLockEv 5Mutex10ReaderLockEv 5Mutex12ReaderUnlockEv
                 5Mutex5AwaitERKNS0_9ConditionE 5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE
                 5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE 7CondVar4WaitEPNS0_5MutexE
                 7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE 7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE)
      # tests/support/mutex_for_tsan.cc, which -u takes out of its library wherever it is needed.
      target_link_options(bulkhead_flags INTERFACE -Wl,--wrap=_ZN4absl7debian3${call} -Wl,-u,__wrap__ZN4absl7debian3${call})
    endforeach()
  endif()
endif()

# bulkhead_library(name [SOURCES a.cc ...] [EXCEPT b.cc ...] DEPS target ...): the static library
# bulkhead::name of one folder; without SOURCES every .cc in and below it, except EXCEPT and
# *_absent.cc.
function(bulkhead_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;EXCEPT;DEPS" ${ARGN})
  if(NOT arg_SOURCES)
    file(GLOB_RECURSE arg_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cc)
    list(FILTER arg_SOURCES EXCLUDE REGEX "_absent\\.cc$")
    if(arg_EXCEPT)
      list(REMOVE_ITEM arg_SOURCES ${arg_EXCEPT})
    endif()
  endif()
  add_library(bulkhead_${name} STATIC ${arg_SOURCES})
  add_library(bulkhead::${name} ALIAS bulkhead_${name})
  bulkhead_group_sources(bulkhead_${name} ${arg_SOURCES})
  target_link_libraries(bulkhead_${name} PUBLIC bulkhead_flags ${arg_DEPS})
endfunction()

# What is tested is optimised; optimising its tests would double the time of their compilation.
set(BH_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)

if(absl_VERSION VERSION_GREATER_EQUAL 20230125)
  set(BH_LOCK_ORDER ${PROJECT_SOURCE_DIR}/tests/support/lock_order.cc)
endif()

# bulkhead_test(name LABEL unit [SOURCES a_test.cc ...] [EXCEPT b_test.cc ...] [WITH c.cc ...] DEPS
# ...): one test binary per folder and label; without SOURCES every *_test.cc in and below the
# folder, except EXCEPT, plus WITH.
function(bulkhead_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT" "SOURCES;EXCEPT;WITH;DEPS" ${ARGN})
  if(NOT arg_SOURCES)
    file(GLOB_RECURSE arg_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *_test.cc)
    if(arg_EXCEPT)
      list(REMOVE_ITEM arg_SOURCES ${arg_EXCEPT})
    endif()
  endif()
  add_executable(${name} ${arg_SOURCES} ${arg_WITH} ${BH_LOCK_ORDER})
  bulkhead_group_sources(${name} ${arg_SOURCES} ${arg_WITH})
  target_link_libraries(${name} PRIVATE bulkhead_flags ${arg_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${BH_TEST_OPTIONS})
  target_compile_definitions(${name} PRIVATE BH_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                                             BH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 1500)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
endfunction()
