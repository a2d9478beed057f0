# What `cmake --install` and `cpack -G DEB` take beside the program (launcher/CMakeLists.txt): the protocol, the
# documents with all that they link to, and the sample model.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # the program is enough; tests need not be built
install(DIRECTORY proto/bulkhead/v1 DESTINATION ${CMAKE_INSTALL_DATADIR}/bulkhead/proto/bulkhead
        FILES_MATCHING PATTERN "*.proto")
install(DIRECTORY proto/google proto/grpc proto/vllm DESTINATION ${CMAKE_INSTALL_DATADIR}/bulkhead/proto
        FILES_MATCHING PATTERN "*.proto")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/bulkhead)
install(DIRECTORY clients DESTINATION ${CMAKE_INSTALL_DATADIR}/bulkhead
        PATTERN build EXCLUDE PATTERN *.egg-info EXCLUDE PATTERN __pycache__ EXCLUDE)
install(FILES README.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs deploy DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN "*.py" EXCLUDE)

set(CPACK_PACKAGE_NAME bulkhead)
set(CPACK_PACKAGE_CONTACT "Bulkhead maintainers <maintainers@bulkhead.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Serves language models with tensor parallelism over MPI ranks")
set(CPACK_PACKAGE_DESCRIPTION "Continuous batching, a paged KV cache and quantised weights, on CPUs and
NVIDIA GPUs, over gRPC and the OpenAI API. Every buffer is planned before the
start, and nothing is allocated on devices afterwards.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_DEBIAN_FILE_NAME bulkhead_${PROJECT_VERSION}_amd64.deb)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/PackageVersion.cmake)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/DebianDocs.cmake)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # needs dpkg-dev and file
set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)  # mpirun, and what MPI loads by itself
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-numpy, python3-matplotlib")  # bench and plan --plot
include(CPack)
