# Every dependency is a package of Debian; scripts/install_packages.sh installs them.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)  # module mode: Debian ships no Protobuf CMake config; must come before gRPC
find_package(gRPC CONFIG REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost 1.74 REQUIRED)  # headers of Asio and Beast
find_package(GTest REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(NGHTTP2 REQUIRED IMPORTED_TARGET libnghttp2)  # HPACK
pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)
pkg_check_modules(ICU REQUIRED IMPORTED_TARGET icu-uc icu-i18n)
pkg_check_modules(TOMLPLUSPLUS REQUIRED tomlplusplus)  # headers alone
pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(LIBZIP REQUIRED IMPORTED_TARGET libzip)  # Debian's CMake config needs zip's programs, too
